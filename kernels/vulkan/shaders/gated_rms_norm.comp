#version 460
// gated_rms_norm of ops.h: a team a row.
#include "common.glsl"
#include "exponential.glsl"
#include "push_norm.h"
#include "row_team.glsl"
#include "squares.glsl"

layout(push_constant, scalar) uniform Push { GatedRmsNormPush p; };

void finish(uint64_t result, uint first, Pack x, Pack gate, Pack weight, float scale) {
  store_pack(result, first, p.cols, gated(x, gate, weight, scale, p.rounds_weighted != 0));
}

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint64_t x = p.x + uint64_t(row) * p.x_stride * kBytesOfT;
  uint64_t gate = p.gate + uint64_t(row) * p.gate_stride * kBytesOfT;
  uint64_t result = p.result + uint64_t(row) * p.result_stride * kBytesOfT;
  uint first = team_first();
  Pack head = load_pack(x, first, p.cols);
  Pack head_gate = load_pack(gate, first, p.cols);
  Pack weight = load_floats(p.weight, first, p.cols);
  precise float squares = squares_of(head);
  for (uint i = first + team_step(); i < p.cols; i += team_step()) squares += squares_of(load_pack(x, i, p.cols));
  float scale = inverse_rms(team_sum(squares), p.cols, p.eps);
  finish(result, first, head, head_gate, weight, scale);
  for (uint i = first + team_step(); i < p.cols; i += team_step()) {
    finish(result, i, load_pack(x, i, p.cols), load_pack(gate, i, p.cols), load_floats(p.weight, i, p.cols), scale);
  }
}
