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

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint64_t from = p.x + uint64_t(row) * p.x_stride * kBytesOfT, to = p.result + uint64_t(row) * p.result_stride * kBytesOfT;
  Pack x[kRowPacks];
  for (uint i = 0; i < kRowPacks; ++i) x[i] = load_pack(from, team_pack(i), p.cols);
  precise float sum = 0.0;
  for (uint i = 0; i < kRowPacks; ++i) sum += sum_of(x[i]);
  precise float mean = team_sum(sum) / float(p.cols);
  precise float squares = 0.0;
  for (uint i = 0; i < kRowPacks; ++i) {
    [[unroll]] for (uint j = 0; j < kPack; ++j) x[i].v[j] = team_pack(i) + j < p.cols ? x[i].v[j] - mean : 0.0;
    squares += squares_of(x[i]);
  }
  float scale = inverse_root(team_sum(squares) / float(p.cols) + p.eps);
  for (uint i = 0; i < kRowPacks; ++i) {
    Pack weight = load_floats(p.weight, team_pack(i), p.cols), bias = load_floats(p.bias, team_pack(i), p.cols);
    [[unroll]] for (uint j = 0; j < kPack; ++j) {
      precise float normed = x[i].v[j] * scale * weight.v[j] + bias.v[j];
      x[i].v[j] = normed;
    }
    store_pack(to, team_pack(i), p.cols, x[i]);
  }
}
