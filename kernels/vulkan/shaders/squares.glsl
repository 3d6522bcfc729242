// What norms sum up. Exact forms, so that builds for aligned rows and for others give the same bits.

#include "exponential.glsl"
#include "pack.glsl"

// `sum` and the squares of the elements, one by one.
float plus_squares(float sum, Pack x) {
  precise float total = sum;
  [[unroll]] for (uint i = 0; i < kPack; ++i) total += x.v[i] * x.v[i];
  return total;
}

// Of 16 bytes of a row: where two invocations share them, the second goes on from the sum of the first, and both have it.
float squares_of(Pack x) {
  float sum = plus_squares(0.0, x);
#ifdef HALF_PACKS
  uint first = gl_SubgroupInvocationID & ~1u;
  sum = subgroupShuffle(plus_squares(subgroupShuffle(sum, first), x), first + 1);
#endif
  return sum;
}

float inverse_root(float x) {
  precise float root = sqrt(x);
  precise float inverse = 1.0 / root;
  return inverse;
}

// Of a row of `cols` elements. Every step is exact, so that no shader contracts what another does not.
float inverse_rms(float squares, uint cols, float eps) {
  precise float mean = squares / float(cols);
  precise float shifted = mean + eps;
  return inverse_root(shifted);
}

// DeltaNet's output norm, of what the row's inverse root of mean squares is known of.
Pack gated(Pack x, Pack gate, Pack weight, float scale, bool rounds_weighted) {
  [[unroll]] for (uint i = 0; i < kPack; ++i) {
    float weighted = weight.v[i] * round_t(x.v[i] * scale);
    if (rounds_weighted) weighted = round_t(weighted);
    x.v[i] = weighted * silu_of_t(gate.v[i]);
  }
  return x;
}
