#version 460
// delta_gates of ops.h: an invocation a (row, head).
#include "common.glsl"
#include "exponential.glsl"
#include "push_delta.h"

layout(push_constant, scalar) uniform Push { DeltaGatesPush p; };

const float kSoftplusThreshold = 20.0;  // as in torch: above it softplus(x) is x

// log(1 + e) for 0 <= e <= 1, to 2^-22: 2 artanh(s) with s = e / (2 + e) <= 1/3. log() near 1 is only exact to 2^-21 of one.
float log1p_of(float e) {
  float s = e / (2.0 + e), z = s * s;
  float series = 1.0 / 15.0;
  for (int i = 13; i >= 1; i -= 2) series = fma(series, z, 1.0 / float(i));
  return 2.0 * s * series;
}

float softplus(float x) { return x > kSoftplusThreshold ? x : max(x, 0.0) + log1p_of(accurate_exp(-abs(x))); }

void main() {
  uint64_t element = invocation_element();
  if (element >= uint64_t(p.num_rows) * p.num_heads) return;
  uint row = uint(element / p.num_heads), head = uint(element - uint64_t(row) * p.num_heads);
  float a = load_t(p.a, uint64_t(row) * p.a_stride + head), b = load_t(p.b, uint64_t(row) * p.b_stride + head);
  float x = a + F32(p.dt_bias).v[head];
  F32(p.decay + element * 4).v[0] = -accurate_exp(F32(p.a_log).v[head]) * softplus(x);
  F32(p.beta + element * 4).v[0] = round_t(accurate_sigmoid(b));
}
