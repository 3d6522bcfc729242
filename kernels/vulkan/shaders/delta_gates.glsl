// The gates of the gated delta rule, as delta_gates of ops.h says.

#include "exponential.glsl"

const float kSoftplusThreshold = 20.0;  // as in torch: above it softplus(x) is x

// log(1 + e) for 0 <= e <= 1, to 2^-22: 2 artanh(s) with s = e / (2 + e) <= 1/3. log() near 1 is only exact to 2^-21 of one.
float log1p_of(float e) {
  float s = e / (2.0 + e), z = s * s;
  float series = 1.0 / 15.0;
  for (int i = 13; i >= 1; i -= 2) series = fma(series, z, 1.0 / float(i));
  return 2.0 * s * series;
}

float softplus(float x) { return x > kSoftplusThreshold ? x : max(x, 0.0) + log1p_of(accurate_exp(-abs(x))); }

float delta_decay(float a, float a_log, float dt_bias) { return -accurate_exp(a_log) * softplus(a + dt_bias); }
float delta_beta(float b) { return round_t(accurate_sigmoid(b)); }
