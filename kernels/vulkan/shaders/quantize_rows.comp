#version 460
// quantize_rows of ops.h: a team a row.
#include "common.glsl"
#include "push_rows.h"
#include "quantize.glsl"

layout(push_constant, scalar) uniform Push { QuantizeRowsPush p; };

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint64_t x = p.x + uint64_t(row) * p.x_stride * kBytesOfT;
  uint largest = 0;
  for (uint i = team_first(); i < p.cols; i += team_step()) largest = max(largest, largest_of(load_pack(x, i, p.cols)));
  RowScale scale = row_scale(team_max(largest));
  if (team_first() == 0) U32(p.scales + uint64_t(row) * 4).v[0] = scale.scale;
  for (uint i = team_first(); i < p.codes_cols; i += team_step()) {
    store_codes(p.codes + uint64_t(row) * p.codes_stride + i, load_pack(x, i, p.cols), scale);
  }
}
