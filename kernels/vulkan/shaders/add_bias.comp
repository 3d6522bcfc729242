#version 460
// add_bias of ops.h: an invocation a pack.
#include "common.glsl"
#include "gelu.glsl"
#include "pack.glsl"
#include "push_vision.h"

layout(constant_id = 2) const uint kFinish = 0;

layout(push_constant, scalar) uniform Push { AddBiasPush p; };

float finished(float y, float residual) {
  precise float sum = residual + y;
  switch (kFinish) {
    case kBiasGeluTanh: return gelu_tanh(y);
    case kBiasGelu: return gelu(y);
    case kBiasResidual: return sum;
  }
  return y;
}

void main() {
  uint packs_per_row = (p.cols + kPack - 1) / kPack;
  uint pack = uint(invocation_element());
  uint row = pack / packs_per_row;
  if (row >= p.rows) return;
  uint first = pack % packs_per_row * kPack;
  Pack x = load_pack(p.x + uint64_t(row) * p.x_stride * kBytesOfT, first, p.cols);
  Pack bias = load_floats(p.bias, first, p.cols);
  Pack residual = x;
  if (kFinish == kBiasResidual) {
    residual = load_pack(p.residual + uint64_t(row) * p.residual_stride * kBytesOfT, first, p.cols);
  }
  [[unroll]] for (uint i = 0; i < kPack; ++i) {
    precise float sum = x.v[i] + bias.v[i];
    x.v[i] = finished(round_t(sum), residual.v[i]);
  }
  store_pack(p.result + uint64_t(row) * p.result_stride * kBytesOfT, first, p.cols, x);
}
