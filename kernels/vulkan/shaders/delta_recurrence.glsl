// A step of the recurrence of the gated delta rule, by invocations that each have four columns of a sixteenth of the rows of a
// value head's state in registers.
//
// q and k come in as they are; what they are to be divided by meets the sums:
//   delta = beta (v - e^decay / |k| S^T k);  S <- e^decay S + k / |k| delta^T;  o = T(k_dim^-0.5 / |q| S^T q)

#include "pack.glsl"
#include "units.glsl"
#include "push_delta.h"

layout(constant_id = 2) const uint kKeyDim = 128;
layout(constant_id = 3) const uint kValueDim = 128;
// kIsAligned: whether rows, heads and states begin at 16 bytes and have whole units.

const uint kQuads = kDeltaSliceColumns / 4;
const uint kParts = kDeltaInvocations / kQuads;
const uint kPartRows = (kKeyDim + kParts - 1) / kParts;
const uint kSlices = (kValueDim + kDeltaSliceColumns - 1) / kDeltaSliceColumns;
const uint kGroupSlices = gl_WorkGroupSize.x / kDeltaInvocations;  // of a workgroup
const float kNormEps = 1e-6;

shared vec4 predicted_parts[kGroupSlices * kDeltaInvocations], output_parts[kGroupSlices * kDeltaInvocations];
shared vec2 square_parts[kGroupSlices * kParts];  // of q and k

uint quad, part, group_slice;  // of this invocation
uint column;                   // of its first of four

// `first_slice`: of the workgroup, among those of the head.
void find_place(uint first_slice) {
  uint place = gl_LocalInvocationID.x % kDeltaInvocations;
  quad = place % kQuads;
  part = place / kQuads;
  group_slice = gl_LocalInvocationID.x / kDeltaInvocations;
  column = (first_slice + group_slice) * kDeltaSliceColumns + quad * 4;
}

uint64_t state_row(uint64_t state, uint row) { return state + (uint64_t(row) * kValueDim + column) * 4; }

void load_state(uint64_t state, out vec4 slice[kPartRows]) {
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    uint row = part * kPartRows + i;
    slice[i] = vec4(0.0);
    if (row >= kKeyDim) continue;
    if (kIsAligned != 0) {
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
    if (kIsAligned != 0) {
      if (column < kValueDim) F32x4(state_row(state, row)).v[0] = slice[i];
    } else {
      for (uint c = 0; c < 4; ++c) {
        if (column + c < kValueDim) F32(state_row(state, row)).v[c] = slice[i][c];
      }
    }
  }
}

// The parts' sums, in the place of the first part's: a column by one invocation, which costs less than all of them by each.
void add_predicted() {
  uint i = gl_LocalInvocationID.x % kDeltaInvocations, first = group_slice * kDeltaInvocations;
  if (i < kDeltaSliceColumns) {
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < kParts; ++j) sum += predicted_parts[first + j * kQuads + i / 4][i % 4];
    predicted_parts[first + i / 4][i % 4] = sum;
  } else if (i < kDeltaSliceColumns + 2) {
    uint x = i - kDeltaSliceColumns;  // q or k
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < kParts; ++j) sum += square_parts[group_slice * kParts + j][x];
    square_parts[group_slice * kParts][x] = sum;
  }
}

// One step with this part's elements of q and k. Gives the output to the invocations of part 0. All invocations call it.
vec4 delta_step(float q[kPartRows], float k[kPartRows], vec4 v, float decay, float beta, inout vec4 slice[kPartRows]) {
  float keep = accurate_exp(decay);
  vec4 predicted = vec4(0.0);
  vec2 squares = vec2(0.0);
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    predicted = fma(slice[i], vec4(k[i]), predicted);
    squares = fma(vec2(q[i], k[i]), vec2(q[i], k[i]), squares);
  }
  predicted_parts[gl_LocalInvocationID.x] = predicted;
  if (quad == 0) square_parts[group_slice * kParts + part] = squares;
  barrier();
  add_predicted();
  barrier();
  predicted = predicted_parts[group_slice * kDeltaInvocations + quad];
  squares = square_parts[group_slice * kParts];
  float k_factor = 1.0 / sqrt(squares.y + kNormEps);
  float q_factor = 1.0 / sqrt(squares.x + kNormEps) * (1.0 / sqrt(float(kKeyDim)));
  vec4 delta = beta * fma(predicted, vec4(-keep * k_factor), v);
  vec4 result = vec4(0.0);
  [[unroll]] for (uint i = 0; i < kPartRows; ++i) {
    slice[i] = fma(vec4(k[i] * k_factor), delta, slice[i] * keep);
    result = fma(slice[i], vec4(q[i]), result);
  }
  output_parts[gl_LocalInvocationID.x] = result;
  barrier();
  if (part != 0) return vec4(0.0);
  result = vec4(0.0);
  [[unroll]] for (uint i = 0; i < kParts; ++i) result += output_parts[(group_slice * kParts + i) * kQuads + quad];
  return result * q_factor;
}
