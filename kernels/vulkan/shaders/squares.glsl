// What norms sum up. Exact forms, so that builds for aligned rows and for others give the same bits.

#include "pack.glsl"

float squares_of(Pack x) {
  precise float sum = 0.0;
  [[unroll]] for (uint i = 0; i < kPack; ++i) sum += x.v[i] * x.v[i];
  return sum;
}

float inverse_root(float x) {
  precise float root = sqrt(x);
  precise float inverse = 1.0 / root;
  return inverse;
}
