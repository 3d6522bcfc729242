#version 460
// residual_norm of ops.h: a team a row. Sums, norms and codes are those of combine, shared_expert_merge,
// add, rms_norm and quantize_rows. An invocation goes
// through its own elements three times, of which it finds what it wrote.
#include "common.glsl"
#include "push_norm.h"
#include "quantize.glsl"
#include "squares.glsl"

layout(constant_id = 3) const uint kRoundsFirst = 0;  // whether x / rms is rounded to T before the weight
layout(constant_id = 4) const uint kNumSlots = 0;     // of a token

layout(push_constant, scalar) uniform Push { ResidualNormPush p; };

uint64_t residual, result;  // rows

#include "expert_sum.glsl"

Pack addend(uint row, uint first) {
  if (kNumSlots == 0) return load_pack(p.added + uint64_t(row) * p.added_stride * kBytesOfT, first, p.cols);
  Pack sum = combined(row, first);
  return p.shared_row == 0 ? sum : merged(sum, row, first);
}

Pack sum_of(uint row, uint first) {
  Pack x = load_pack(residual, first, p.cols);
  if (p.added == 0) return x;
  Pack y = addend(row, first);
  [[unroll]] for (uint i = 0; i < kPack; ++i) x.v[i] = round_t(x.v[i] + y.v[i]);
  store_pack(residual, first, p.cols, x);
  return x;
}

Pack normed(Pack x, uint first, float scale) {
  Pack weight = load_floats(p.weight, first, p.cols);
  [[unroll]] for (uint i = 0; i < kPack; ++i) {
    float n = x.v[i] * scale;
    if (kRoundsFirst != 0) n = round_t(n);
    x.v[i] = round_t(n * weight.v[i]);
  }
  return x;
}

void store_quantized(uint row, Pack head, uint largest) {
  RowScale scale = row_scale(team_max(largest));
  uint64_t codes = p.codes + uint64_t(row) * p.codes_stride;
  if (team_first() == 0) U32(p.scales + uint64_t(row) * 4).v[0] = scale.scale;
  for (uint i = team_first(); i < p.codes_cols; i += team_step()) {
    if (i == team_first()) {
      store_codes(codes + i, head, scale);
    } else {
      store_codes(codes + i, load_pack(result, i, p.cols), scale);
    }
  }
}

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  residual = p.residual + uint64_t(row) * p.residual_stride * kBytesOfT;
  result = p.result + uint64_t(row) * p.result_stride * kBytesOfT;
  uint first = team_first();
  Pack head = sum_of(row, first);  // all there is of a row of the usual length: it stays in registers
  precise float squares = squares_of(head);
  for (uint i = first + team_step(); i < p.cols; i += team_step()) squares += squares_of(sum_of(row, i));
  float scale = inverse_rms(team_sum(squares), p.cols, p.eps);
  head = normed(head, first, scale);
  store_pack(result, first, p.cols, head);
  uint largest = largest_of(head);
  for (uint i = first + team_step(); i < p.cols; i += team_step()) {
    Pack x = normed(load_pack(residual, i, p.cols), i, scale);
    store_pack(result, i, p.cols, x);
    largest = max(largest, largest_of(x));
  }
  if (p.codes != 0) store_quantized(row, head, largest);
}
