#version 460
// quantize_rows of ops.h: a team a row.
#include "common.glsl"
#include "push_rows.h"
#include "quantize.glsl"

layout(push_constant, scalar) uniform Push { QuantizeRowsPush p; };

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  Pack x[kRowPacks];
  for (uint i = 0; i < kRowPacks; ++i) x[i] = load_pack(p.x + uint64_t(row) * p.x_stride * kBytesOfT, team_pack(i), p.cols);
  quantize_row(x, p.codes + uint64_t(row) * p.codes_stride, p.codes_cols, p.scales + uint64_t(row) * 4);
}
