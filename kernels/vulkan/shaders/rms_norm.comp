#version 460
// rms_norm of ops.h: a team a row.
#include "common.glsl"
#include "push_norm.h"
#include "row_team.glsl"
#include "squares.glsl"

layout(push_constant, scalar) uniform Push { RmsNormPush p; };

Pack normed(Pack x, Pack weight, float scale) {
  [[unroll]] for (uint i = 0; i < kPack; ++i) {
    float n = x.v[i] * scale;
    if (p.rounds_first != 0) n = round_t(n);
    x.v[i] = n * weight.v[i];
  }
  return x;
}

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint64_t from = p.x + uint64_t(row) * p.x_stride * kBytesOfT, to = p.result + uint64_t(row) * p.result_stride * kBytesOfT;
  Pack x[kRowPacks], weights[kRowPacks];
  for (uint i = 0; i < kRowPacks; ++i) {
    x[i] = load_pack(from, team_pack(i), p.cols);
    weights[i] = load_floats(p.weight, team_pack(i), p.cols);
  }
  precise float squares = 0.0;
  for (uint i = 0; i < kRowPacks; ++i) squares += squares_of(x[i]);
  float scale = inverse_rms(team_sum(squares), p.cols, p.eps);
  for (uint i = 0; i < kRowPacks; ++i) store_pack(to, team_pack(i), p.cols, normed(x[i], weights[i], scale));
}
