// a * b + c with one rounding, which GLSL's fma() does not promise, in plain operations.

// a * b = high + low exactly; a's parts have 12 bits each, as have b's.
vec2 two_product(float a, float b) {
  float a1 = uintBitsToFloat(floatBitsToUint(a) & 0xfffff000u), b1 = uintBitsToFloat(floatBitsToUint(b) & 0xfffff000u);
  precise float a2 = a - a1, b2 = b - b1, high = a * b;
  precise float low = ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2;
  return vec2(high, low);
}

// a + b = high + low exactly (Knuth, The Art of Computer Programming, volume 2, section 4.2.2).
vec2 two_sum(float a, float b) {
  precise float high = a + b;
  precise float virtual_b = high - a;
  precise float low = (a - (high - virtual_b)) + (b - virtual_b);
  return vec2(high, low);
}

// The sum rounded to odd: the nearest float if it is exact, else of the two around it the one whose last bit is set.
float sum_to_odd(float a, float b) {
  vec2 sum = two_sum(a, b);
  uint bits = floatBitsToUint(sum.x);
  if (sum.y == 0.0 || (bits & 1u) != 0) return sum.x;
  bool grows = (sum.y > 0.0) == (sum.x > 0.0);
  return uintBitsToFloat(grows ? bits + 1u : bits - 1u);
}

// Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (IEEE Transactions on Computers 57, 2008): what is left
// of the exact sum, rounded to odd, cannot mislead the last rounding. For finite results that are not tiny.
float emulated_fma(float a, float b, float c) {
  vec2 product = two_product(a, b);
  vec2 low = two_sum(c, product.y);
  vec2 high = two_sum(product.x, low.x);
  precise float result = high.x + sum_to_odd(high.y, low.y);
  return result;
}

// Whether fma() rounds once here; `probe` is 1 + 2^-12, which the compiler must not know.
bool has_fused_fma(float probe) {
  precise float square = probe * probe;
  return fma(probe, probe, -square) != 0.0;
}

float fused_multiply_add(bool is_fused, float a, float b, float c) {
  precise float result = is_fused ? fma(a, b, c) : emulated_fma(a, b, c);
  return result;
}
