#version 460
// residual_norm of ops.h: a team a row. Sums, norms and codes are those of combine, shared_expert_merge, add, rms_norm and
// quantize_rows. What an invocation needs of memory it asks for before it stores anything: loads do not pass stores, since an
// address may be any other's.
#include "common.glsl"
#include "push_norm.h"
#include "quantize.glsl"
#include "squares.glsl"

layout(constant_id = 4) const uint kRoundsFirst = 0;  // whether x / rms is rounded to T before the weight
layout(constant_id = 5) const uint kAdds = 0;
layout(constant_id = 6) const uint kNumSlots = 0;  // of a token; 0: what is added lies there as it is
layout(constant_id = 7) const uint kHasShared = 0;

layout(push_constant, scalar) uniform Push { ResidualNormPush p; };

#include "expert_sum.glsl"

// What is added to the residual. load_slots() has been called.
Pack addend(uint row, uint first) {
  if (kNumSlots == 0) return load_pack(p.added + uint64_t(row) * p.added_stride * kBytesOfT, first, p.cols);
  return expert_sum(row, first);
}

Pack normed(Pack x, Pack weight, float scale) {
  [[unroll]] for (uint i = 0; i < kPack; ++i) {
    float n = x.v[i] * scale;
    if (kRoundsFirst != 0) n = round_t(n);
    x.v[i] = round_t(n * weight.v[i]);
  }
  return x;
}

void store_row(uint64_t row, Pack x[kRowPacks]) {
  for (uint i = 0; i < kRowPacks; ++i) store_pack(row, team_pack(i), p.cols, x[i]);
}

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint64_t residual = p.residual + uint64_t(row) * p.residual_stride * kBytesOfT;
  if (kNumSlots != 0) load_slots(row);
  Pack x[kRowPacks], weights[kRowPacks];
  for (uint i = 0; i < kRowPacks; ++i) {
    x[i] = load_pack(residual, team_pack(i), p.cols);
    weights[i] = load_floats(p.weight, team_pack(i), p.cols);
  }
  precise float squares = 0.0;
  for (uint i = 0; i < kRowPacks; ++i) {
    if (kAdds != 0) {
      Pack y = addend(row, team_pack(i));
      [[unroll]] for (uint j = 0; j < kPack; ++j) x[i].v[j] = round_t(x[i].v[j] + y.v[j]);
    }
    squares += squares_of(x[i]);
  }
  if (kAdds != 0) store_row(residual, x);
  float scale = inverse_rms(team_sum(squares), p.cols, p.eps);
  for (uint i = 0; i < kRowPacks; ++i) x[i] = normed(x[i], weights[i], scale);
  store_row(p.result + uint64_t(row) * p.result_stride * kBytesOfT, x);
  if (p.codes != 0) quantize_row(x, p.codes + uint64_t(row) * p.codes_stride, p.codes_cols, p.scales + uint64_t(row) * 4);
}
