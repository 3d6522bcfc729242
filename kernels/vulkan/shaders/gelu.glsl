// The Gaussian error linear units of ops.h.

#include "exponential.glsl"

// y/2 (1 + tanh(u)) = y sigmoid(2 u)
float gelu_tanh(float y) {
  const float kTwiceRootOf2ByPi = 1.59576912;
  precise float inner = y + 0.044715 * (y * y * y);
  return y * accurate_sigmoid(kTwiceRootOf2ByPi * inner);
}

// y/2 (1 + erf(y / sqrt(2))), with erf within 1.5e-7 as in Abramowitz and Stegun, 7.1.26.
float gelu(float y) {
  precise float z = abs(y) * 0.70710678;
  precise float t = 1.0 / (1.0 + 0.3275911 * z);
  precise float polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  precise float tail = polynomial * accurate_exp(-z * z);  // 1 - erf(z)
  return 0.5 * y * (y < 0.0 ? tail : 2.0 - tail);
}
