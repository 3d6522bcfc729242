#version 460
// delta_gates of ops.h: an invocation a (row, head).
#include "common.glsl"
#include "delta_gates.glsl"
#include "push_delta.h"

layout(push_constant, scalar) uniform Push { DeltaGatesPush p; };

void main() {
  uint64_t element = invocation_element();
  if (element >= uint64_t(p.num_rows) * p.num_heads) return;
  uint row = uint(element / p.num_heads), head = uint(element - uint64_t(row) * p.num_heads);
  float a = load_t(p.a, uint64_t(row) * p.a_stride + head), b = load_t(p.b, uint64_t(row) * p.b_stride + head);
  F32(p.decay + element * 4).v[0] = delta_decay(a, F32(p.a_log).v[head], F32(p.dt_bias).v[head]);
  F32(p.beta + element * 4).v[0] = delta_beta(b);
}
