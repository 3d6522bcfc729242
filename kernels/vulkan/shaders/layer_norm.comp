#version 460
// layer_norm of ops.h: a team a row, the mean first, then the squares of what differs from it.
#include "common.glsl"
#include "push_norm.h"
#include "row_team.glsl"
#include "squares.glsl"

layout(push_constant, scalar) uniform Push { LayerNormPush p; };

float sum_of(Pack x) {
  precise float sum = 0.0;
  [[unroll]] for (uint i = 0; i < kPack; ++i) sum += x.v[i];
  return sum;
}

// Elements [first, first + kPack) of a row less its mean, zeros behind its end.
Pack centered(uint64_t row, uint first, float mean) {
  Pack x = load_pack(row, first, p.cols);
  [[unroll]] for (uint i = 0; i < kPack; ++i) x.v[i] = first + i < p.cols ? x.v[i] - mean : 0.0;
  return x;
}

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint64_t x = p.x + uint64_t(row) * p.x_stride * kBytesOfT;
  uint64_t result = p.result + uint64_t(row) * p.result_stride * kBytesOfT;
  precise float sum = 0.0;
  for (uint i = team_first(); i < p.cols; i += team_step()) sum += sum_of(load_pack(x, i, p.cols));
  precise float mean = team_sum(sum) / float(p.cols);
  precise float squares = 0.0;
  for (uint i = team_first(); i < p.cols; i += team_step()) squares += squares_of(centered(x, i, mean));
  float scale = inverse_root(team_sum(squares) / float(p.cols) + p.eps);
  for (uint i = team_first(); i < p.cols; i += team_step()) {
    Pack y = centered(x, i, mean);
    Pack weight = load_floats(p.weight, i, p.cols);
    Pack bias = load_floats(p.bias, i, p.cols);
    [[unroll]] for (uint j = 0; j < kPack; ++j) {
      precise float normed = y.v[j] * scale * weight.v[j] + bias.v[j];
      y.v[j] = normed;
    }
    store_pack(result, i, p.cols, y);
  }
}
