#version 460
// The recurrence of gated_delta_rule of ops.h: a workgroup has kDeltaSliceColumns columns of one value head of one sequence,
// keeps that slice of the state in registers, and takes the rows that are replayed, then the span's, one by one.
//
// q and k come in as they are; what they are to be divided by meets the sums:
//   delta = beta (v - e^decay / |k| S^T k);  S <- e^decay S + k / |k| delta^T;  o = T(k_dim^-0.5 / |q| S^T q)
#include "common.glsl"
#include "units.glsl"
#include "exponential.glsl"
#include "push_delta.h"

layout(constant_id = 1) const uint kKeyDim = 128;
layout(constant_id = 2) const uint kValueDim = 128;
layout(constant_id = 3) const uint kAligned = 1;  // whether rows, heads and states begin at 16 bytes and have whole units

layout(push_constant, scalar) uniform Push { DeltaRulePush p; };

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer DeltaSequences { DeltaSequence v[]; };

const uint kQuads = kDeltaSliceColumns / 4;
const uint kParts = kDeltaInvocations / kQuads;
const uint kPartRows = (kKeyDim + kParts - 1) / kParts;
const uint kSlices = (kValueDim + kDeltaSliceColumns - 1) / kDeltaSliceColumns;
const float kNormEps = 1e-6;

shared vec4 predicted_parts[kParts * kQuads], output_parts[kParts * kQuads];
shared vec2 square_parts[kParts];  // of q and k

uint quad, part;  // of this invocation
uint column;      // of its first of four

// A row of one value head.
struct DeltaRow {
  uint64_t qkv;
  float decay, beta;
};

uint64_t state_row(uint64_t state, uint row) { return state + (uint64_t(row) * kValueDim + column) * 4; }

void load_state(uint64_t state, out vec4 slice[kPartRows]) {
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    uint row = part * kPartRows + i;
    slice[i] = vec4(0.0);
    if (row >= kKeyDim) continue;
    if (kAligned != 0) {
      if (column < kValueDim) slice[i] = F32x4(state_row(state, row)).v[0];
    } else {
      for (uint c = 0; c < 4; ++c) {
        if (column + c < kValueDim) slice[i][c] = F32(state_row(state, row)).v[c];
      }
    }
  }
}

void store_state(uint64_t state, vec4 slice[kPartRows]) {
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    uint row = part * kPartRows + i;
    if (row >= kKeyDim) continue;
    if (kAligned != 0) {
      if (column < kValueDim) F32x4(state_row(state, row)).v[0] = slice[i];
    } else {
      for (uint c = 0; c < 4; ++c) {
        if (column + c < kValueDim) F32(state_row(state, row)).v[c] = slice[i][c];
      }
    }
  }
}

// This part's elements of a query or a key.
void load_part(uint64_t row, out float x[kPartRows]) {
  if (kAligned != 0 && kPartRows % kUnit == 0) {
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

// One step. Gives the output to the invocations of part 0.
vec4 step_row(DeltaRow row, uint v_head, inout vec4 slice[kPartRows]) {
  uint k_head = v_head / (p.num_v_heads / p.num_k_heads);
  float q[kPartRows], k[kPartRows];
  load_part(row.qkv + uint64_t(k_head) * kKeyDim * kBytesOfT, q);
  load_part(row.qkv + uint64_t(p.num_k_heads + k_head) * kKeyDim * kBytesOfT, k);
  uint64_t values = row.qkv + (uint64_t(2 * p.num_k_heads) * kKeyDim + uint64_t(v_head) * kValueDim) * kBytesOfT;
  vec4 v = load_quad(values, column, kValueDim, kAligned != 0);
  float keep = accurate_exp(row.decay);

  vec4 predicted = vec4(0.0);
  vec2 squares = vec2(0.0);
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    predicted = fma(slice[i], vec4(k[i]), predicted);
    squares = fma(vec2(q[i], k[i]), vec2(q[i], k[i]), squares);
  }
  predicted_parts[part * kQuads + quad] = predicted;
  if (quad == 0) square_parts[part] = squares;
  barrier();
  predicted = vec4(0.0);
  squares = vec2(0.0);
  [[unroll]] for (uint i = 0; i < kParts; ++i) {
    predicted += predicted_parts[i * kQuads + quad];
    squares += square_parts[i];
  }
  float k_factor = 1.0 / sqrt(squares.y + kNormEps);
  float q_factor = 1.0 / sqrt(squares.x + kNormEps) * (1.0 / sqrt(float(kKeyDim)));
  vec4 delta = row.beta * fma(predicted, vec4(-keep * k_factor), v);
  vec4 result = vec4(0.0);
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    slice[i] = fma(vec4(k[i] * k_factor), delta, slice[i] * keep);
    result = fma(slice[i], vec4(q[i]), result);
  }
  output_parts[part * kQuads + quad] = result;
  barrier();
  if (part != 0) return vec4(0.0);
  result = vec4(0.0);
  [[unroll]] for (uint i = 0; i < kParts; ++i) result += output_parts[i * kQuads + quad];
  return result * q_factor;
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
  quad = gl_LocalInvocationID.x % kQuads;
  part = gl_LocalInvocationID.x / kQuads;
  column = (workgroup_row() - head_idx * kSlices) * kDeltaSliceColumns + quad * 4;
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
