#version 460
// add, multiply, sigmoid_gate, swiglu and shared_expert_merge of ops.h: an invocation a pack.
#include "common.glsl"
#include "exponential.glsl"
#include "pack.glsl"
#include "push_elementwise.h"

layout(constant_id = 2) const uint kOperation = 0;

layout(push_constant, scalar) uniform Push { ElementwisePush p; };

float result_of(float a, float b, float gate) {
  precise float y = a * b;
  switch (kOperation) {
    case kAdd: y = a + b; break;
    case kSigmoidGate: y = a * round_t(accurate_sigmoid(b)); break;
    case kSwiglu: y = round_t(accurate_silu(a)) * b; break;
    case kSharedExpertMerge: y = plus_product(a, gate, b); break;
  }
  return y;
}

void main() {
  uint packs_per_row = (p.cols + kPack - 1) / kPack;
  uint pack = uint(invocation_element());
  uint row = pack / packs_per_row;
  if (row >= p.rows) return;
  uint first = pack % packs_per_row * kPack;
  Pack a = load_pack(p.a + uint64_t(row) * p.a_stride * kBytesOfT, first, p.cols);
  Pack b = load_pack(p.b + uint64_t(row) * p.b_stride * kBytesOfT, first, p.cols);
  float gate = 0.0;
  if (kOperation == kSharedExpertMerge) gate = round_t(accurate_sigmoid(load_t(p.gate, uint64_t(row) * p.gate_stride)));
  [[unroll]] for (uint i = 0; i < kPack; ++i) a.v[i] = result_of(a.v[i], b.v[i], gate);
  store_pack(p.result + uint64_t(row) * p.result_stride * kBytesOfT, first, p.cols, a);
}
