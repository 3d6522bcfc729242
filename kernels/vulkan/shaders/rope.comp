#version 460
// rope and vision_rope of ops.h: an invocation a pair of elements.
#include "common.glsl"
#include "push_rope.h"

layout(constant_id = 1) const uint kRoundsProducts = 0;  // to T, before they are added

layout(push_constant, scalar) uniform Push { RopePush p; };

float product(float a, float b) {
  precise float y = a * b;
  return kRoundsProducts != 0 ? round_t(y) : y;
}

void main() {
  uint pairs_per_row = p.num_heads * p.half_dim;
  uint pair = uint(invocation_element());
  uint row = pair / pairs_per_row;
  if (row >= p.rows) return;
  uint head = pair % pairs_per_row / p.half_dim, j = pair % p.half_dim;
  uint64_t x = p.x + (uint64_t(row) * p.x_stride + head * p.head_dim + j) * kBytesOfT;
  uint64_t angle = uint64_t(row) * p.half_dim + j;
  float c = F32(p.cos + angle * 4).v[0], s = F32(p.sin + angle * 4).v[0];
  float lower = load_t(x, 0), upper = load_t(x, p.half_dim);
  precise float new_lower = product(lower, c) - product(upper, s);
  precise float new_upper = product(upper, c) + product(lower, s);
  store_t(x, 0, new_lower);
  store_t(x, p.half_dim, new_upper);
}
