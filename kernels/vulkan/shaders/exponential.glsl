// The exponential function and what is made of it, to about one unit in the last place on every device: Vulkan's own exp()
// may be off by more than 200 of them at the ends of its range. Without fma(), which need not round once, and which drivers
// rearrange even where it is precise.

#include "fused_multiply_add.glsl"

// e^x; 0 below -104, infinity above 88.73, NaN for NaN. Results below 2^-126 may come out as zero.
//
// x = n ln2 + r with |r| <= ln2 / 2 (ln2 in two parts, Cody and Waite), e^r by its Taylor polynomial of degree 7, of which what
// 1 + r loses is taken in, 2^n in two halves so that neither overflows.
float accurate_exp(float x) {
  const float kRoundingShift = 12582912.0;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  precise float bounded = clamp(x, -104.0, 89.0);
  precise float shifted = bounded * 1.44269504 + kRoundingShift;
  precise float n = shifted - kRoundingShift;
  precise float high = bounded - n * 0.693359375;  // exact: 8 bits times 10
  precise float low = n * 2.12194440e-4;
  precise float r = high + low;
  precise float tail = r * (1.0 / 5040.0) + 1.0 / 720.0;
  tail = tail * r + 1.0 / 120.0;
  tail = tail * r + 1.0 / 24.0;
  tail = tail * r + 1.0 / 6.0;
  tail = tail * r + 0.5;
  precise float sum = 1.0 + r;
  precise float lost = (r - (sum - 1.0)) + (low - (r - high));
  precise float y = sum + (r * r * tail + lost);
  int exponent = floatBitsToInt(shifted) - 0x4b400000;
  int part = exponent >> 1;
  y = y * intBitsToFloat((part + 127) << 23) * intBitsToFloat((exponent - part + 127) << 23);
  return is_nan(x) ? x : y;
}

// a / b to the nearest float but for rare cases, which is better than Vulkan's division. For a / b and b from 1e-30 to 1e30.
float quotient(float a, float b) {
  precise float q = a / b;
  vec2 product = two_product(q, b);
  precise float y = q + ((a - product.x) - product.y) / b;
  return y;
}

// 1 / (1 + e^-x)
float accurate_sigmoid(float x) {
  precise float divisor = 1.0 + accurate_exp(-x);
  return divisor < 1e30 ? quotient(1.0, divisor) : 1.0 / divisor;
}
float accurate_silu(float x) { return x * accurate_sigmoid(x); }

// x / (1 + e^-x) for a result that is rounded to T: of a bf16, Vulkan's own functions, which are several times as fast, give
// more than twice the bits.
#ifdef T_BF16
float silu_of_t(float x) { return silu(x); }
#else
float silu_of_t(float x) { return accurate_silu(x); }
#endif
