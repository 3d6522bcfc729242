#version 460
// The recurrence of gated_delta_rule of ops.h: a workgroup has kDeltaSliceColumns columns of one value head of one sequence,
// and takes the rows that are replayed, then the span's, one by one.
#include "common.glsl"
#include "exponential.glsl"
#include "delta_recurrence.glsl"

layout(push_constant, scalar) uniform Push { DeltaRulePush p; };

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer DeltaSequences { DeltaSequence v[]; };

// A row of one value head.
struct DeltaRow {
  uint64_t qkv;
  float decay, beta;
};

// This part's elements of a query or a key.
void load_part(uint64_t row, out float x[kPartRows]) {
  if (kIsAligned != 0 && kPartRows % kUnit == 0) {
    [[unroll]] for (uint i = 0; i < kPartRows; i += kUnit) {
      uvec4 unit = load_unit(row, part * kPartRows + i, kKeyDim, true);
      [[unroll]] for (uint j = 0; j < kUnit; ++j) x[i + j] = unit_quad(unit, j / 4)[j % 4];
    }
  } else {
    [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
      uint element = part * kPartRows + i;
      x[i] = element < kKeyDim ? load_t(row, element) : 0.0;
    }
  }
}

vec4 step_row(DeltaRow row, uint v_head, inout vec4 slice[kPartRows]) {
  uint k_head = v_head / (p.num_v_heads / p.num_k_heads);
  float q[kPartRows], k[kPartRows];
  load_part(row.qkv + uint64_t(k_head) * kKeyDim * kBytesOfT, q);
  load_part(row.qkv + uint64_t(p.num_k_heads + k_head) * kKeyDim * kBytesOfT, k);
  uint64_t values = row.qkv + (uint64_t(2 * p.num_k_heads) * kKeyDim + uint64_t(v_head) * kValueDim) * kBytesOfT;
  vec4 v = load_quad(values, column, kValueDim, kIsAligned != 0);
  return delta_step(q, k, v, row.decay, row.beta, slice);
}

// Row `i` of the rows that are replayed and of the span's.
DeltaRow row_of(DeltaSequence sequence, uint i, uint v_head) {
  bool is_held = i < sequence.num_replayed;
  uint row = is_held ? i : sequence.first_row + i - sequence.num_replayed;
  uint64_t qkv = is_held ? sequence.held_qkv : p.qkv;
  uint64_t gate = (uint64_t(row) * p.num_v_heads + v_head) * 4;
  return DeltaRow(qkv + uint64_t(row) * (is_held ? p.qkv_columns : p.qkv_stride) * kBytesOfT,
                  F32((is_held ? sequence.held_decay : p.decay) + gate).v[0],
                  F32((is_held ? sequence.held_beta : p.beta) + gate).v[0]);
}

void main() {
  uint head_idx = workgroup_row() / kSlices;
  uint sequence_idx = head_idx / p.num_v_heads, v_head = head_idx - sequence_idx * p.num_v_heads;
  if (sequence_idx >= p.num_sequences) return;
  find_place(workgroup_row() - head_idx * kSlices);
  DeltaSequence sequence = DeltaSequences(p.sequences).v[sequence_idx];
  uint64_t state = sequence.state + uint64_t(v_head) * (kKeyDim * kValueDim * 4);
  vec4 slice[kPartRows];
  load_state(state, slice);
  uint num_taken = sequence.num_replayed + sequence.num_taken;
  for (uint i = 0; i < sequence.num_replayed + sequence.num_tokens; ++i) {
    vec4 result = step_row(row_of(sequence, i, v_head), v_head, slice);
    if (i + 1 == num_taken) store_state(state, slice);
    if (i < sequence.num_replayed || part != 0) continue;
    uint row = sequence.first_row + i - sequence.num_replayed;
    uint64_t to = p.result + (uint64_t(row) * p.result_stride + uint64_t(v_head) * kValueDim) * kBytesOfT;
    for (uint c = 0; c < 4; ++c) {
      if (column + c < kValueDim) store_t(to, column + c, result[c]);
    }
  }
}
