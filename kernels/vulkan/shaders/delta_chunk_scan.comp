#version 460
// The second dispatch of gated_delta_rule's chunk form: a workgroup has kDeltaSliceColumns columns of one value head of one
// sequence, keeps that slice of the state in registers, and walks through the chunks.
#include "common.glsl"
#include "units.glsl"
#include "push_delta.h"
#include "delta_chunk.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer DeltaSequences { DeltaSequence v[]; };

const uint kQuads = kDeltaSliceColumns / 4;
const uint kSlices = kChunkDim / kDeltaSliceColumns;
const uint kGroups = kChunkInvocations / kQuads;  // of rows
const uint kTokens = kMaxChunk / kGroups;         // of an invocation, kGroups apart
const uint kStateRows = kChunkDim / kGroups;      // of an invocation, side by side
const uint kKeyUnits = kChunkDim / kUnit;         // of a token
const uint kKeyUnitsPerThread = kSlice * kKeyUnits / kChunkInvocations;

shared vec4 rows[kChunkDim * kQuads];  // [row, quad] of the state; then of X, and of N
shared float x_factors[kMaxChunk], q_factors[kMaxChunk], k_factors[kMaxChunk];

uint quad, group;        // of this invocation
uint k_head, v_head;
uint first_column;       // of the slice
uint64_t prepared;       // of the chunk and value head
uint num_used;           // rows of T and M that are no zeros, in whole slices

void load_factors() {
  uint t = gl_LocalInvocationID.x;
  if (t >= kMaxChunk) return;
  F32 factors = F32(prepared + kFactorsAt);
  x_factors[t] = factors.v[t];
  q_factors[t] = factors.v[kMaxChunk + t];
  k_factors[t] = factors.v[2 * kMaxChunk + t];
}

// sums[i] = K S and sums[kTokens + i] = Q S of token group + kGroups i, before their factors.
void multiply_state(out vec4 sums[2 * kTokens]) {
  [[unroll]] for (uint i = 0; i < 2 * kTokens; ++i) sums[i] = vec4(0.0);
  uvec4 units[kUnitsPerThread];
  fetch_keys_and_queries(k_head, 0, units);
  for (uint first = 0; first < kChunkDim; first += kSlice) {
    barrier();
    stage_keys_and_queries(units);
    barrier();
    if (first + kSlice < kChunkDim) fetch_keys_and_queries(k_head, first + kSlice, units);
    for (uint d = 0; d < kSlice / 4; ++d) {
      vec4 x[2 * kTokens];
      [[unroll]] for (uint i = 0; i < 2 * kTokens; ++i) x[i] = staged[(group + i * kGroups) * kStride + d];
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        vec4 state = rows[(first + 4 * d + c) * kQuads + quad];
        [[unroll]] for (uint i = 0; i < 2 * kTokens; ++i) sums[i] = fma(vec4(x[i][c]), state, sums[i]);
      }
    }
  }
}

// Adds a triangle of the first dispatch times `rows` to the tokens of this invocation.
void multiply_triangle(uint64_t triangle, inout vec4 sums[kTokens]) {
  uint t = gl_LocalInvocationID.x;
  uint64_t element = triangle + (t / (kSlice / 4) * kMaxChunk + t % (kSlice / 4) * 4) * 4;
  vec4 next = F32x4(element).v[0];
  for (uint first = 0; first < num_used; first += kSlice) {
    barrier();
    staged[t / (kSlice / 4) * kStride + t % (kSlice / 4)] = next;
    barrier();
    if (first + kSlice < num_used) next = F32x4(element + (first + kSlice) * 4).v[0];
    for (uint d = 0; d < kSlice / 4; ++d) {
      vec4 x[kTokens];
      [[unroll]] for (uint i = 0; i < kTokens; ++i) x[i] = staged[(group + i * kGroups) * kStride + d];
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        vec4 row = rows[(first + 4 * d + c) * kQuads + quad];
        [[unroll]] for (uint i = 0; i < kTokens; ++i) sums[i] = fma(vec4(x[i][c]), row, sums[i]);
      }
    }
  }
  barrier();
}

void fetch_keys(uint first_token, out uvec4 units[kKeyUnitsPerThread]) {
  [[unroll]] for (uint i = 0; i < kKeyUnitsPerThread; ++i) {
    uint unit = gl_LocalInvocationID.x + i * kChunkInvocations;
    uint token = first_token + unit / kKeyUnits;
    units[i] = uvec4(0);
    if (token >= chunk.num_rows) continue;
    uint element = (p.num_k_heads + k_head) * kChunkDim + unit % kKeyUnits * kUnit;
    units[i] = load_unit(token_row(token), element, p.qkv_columns, kAligned != 0);
  }
}

// S <- e^(G_last) S + sum_s e^(G_last - G_s) k_s N_s^T, with N in `rows`.
void update_state(inout vec4 state[kStateRows]) {
  float whole_decay = F32(prepared + kFactorsAt + kChunkWholeDecay * 4).v[0];
  [[unroll]] for (uint i = 0; i < kStateRows; ++i) state[i] *= whole_decay;
  uvec4 units[kKeyUnitsPerThread];
  fetch_keys(0, units);
  for (uint first = 0; first < num_used; first += kSlice) {
    barrier();
    [[unroll]] for (uint i = 0; i < kKeyUnitsPerThread; ++i) {
      uint unit = gl_LocalInvocationID.x + i * kChunkInvocations;
      float factor = k_factors[first + unit / kKeyUnits];
      [[unroll]] for (uint q = 0; q < kUnit / 4; ++q) staged[unit * (kUnit / 4) + q] = unit_quad(units[i], q) * factor;
    }
    barrier();
    if (first + kSlice < num_used) fetch_keys(first + kSlice, units);
    for (uint s = 0; s < kSlice; ++s) {
      vec4 key = staged[s * (kChunkDim / 4) + group];
      vec4 row = rows[(first + s) * kQuads + quad];
      [[unroll]] for (uint i = 0; i < kStateRows; ++i) state[i] = fma(vec4(key[i]), row, state[i]);
    }
  }
  barrier();
}

void take_chunk(inout vec4 state[kStateRows]) {
  uint column = first_column + quad * 4;
  load_factors();
  [[unroll]] for (uint i = 0; i < kStateRows; ++i) rows[(group * kStateRows + i) * kQuads + quad] = state[i];
  vec4 products[2 * kTokens], sums[kTokens];
  multiply_state(products);
  barrier();
  uint v_element = 2 * p.num_k_heads * kChunkDim + v_head * kChunkDim + column;
  [[unroll]] for (uint i = 0; i < kTokens; ++i) {
    uint token = group + i * kGroups;
    vec4 v = vec4(0.0);
    if (token < chunk.num_rows) v = load_quad(token_row(token), v_element, p.qkv_columns, kAligned != 0);
    rows[token * kQuads + quad] = fma(products[i], vec4(-x_factors[token]), v);
    sums[i] = vec4(0.0);
  }
  multiply_triangle(prepared + kTAt, sums);
  [[unroll]] for (uint i = 0; i < kTokens; ++i) {
    uint token = group + i * kGroups;
    rows[token * kQuads + quad] = sums[i];
    sums[i] = products[kTokens + i] * q_factors[token];
  }
  multiply_triangle(prepared + kMAt, sums);
  [[unroll]] for (uint i = 0; i < kTokens; ++i) {
    uint token = group + i * kGroups;
    if (token >= chunk.num_rows) continue;
    uint64_t to = p.result + (uint64_t(chunk.first_row + token) * p.result_stride + v_head * kChunkDim) * kBytesOfT;
    [[unroll]] for (uint c = 0; c < 4; ++c) store_t(to, column + c, sums[i][c]);
  }
  update_state(state);
}

void main() {
  uint head_idx = workgroup_row() / kSlices;
  uint sequence_idx = head_idx / p.num_v_heads;
  if (sequence_idx >= p.num_sequences) return;
  v_head = head_idx - sequence_idx * p.num_v_heads;
  k_head = v_head / (p.num_v_heads / p.num_k_heads);
  first_column = (workgroup_row() - head_idx * kSlices) * kDeltaSliceColumns;
  quad = gl_LocalInvocationID.x % kQuads;
  group = gl_LocalInvocationID.x / kQuads;
  DeltaSequence sequence = DeltaSequences(p.sequences).v[sequence_idx];
  uint64_t slice = sequence.state + (uint64_t(v_head) * kChunkDim * kChunkDim + first_column + quad * 4) * 4;
  vec4 state[kStateRows];
  [[unroll]] for (uint i = 0; i < kStateRows; ++i)
    state[i] = F32x4(slice + (group * kStateRows + i) * (kChunkDim * 4)).v[0];
  uint num_chunks = (sequence.num_tokens + p.chunk - 1) / p.chunk;
  for (uint i = 0; i < num_chunks; ++i) {
    chunk = DeltaChunks(p.chunks).v[sequence.first_chunk + i];
    prepared = prepared_of(sequence.first_chunk + i, v_head);
    num_used = (chunk.num_rows + kSlice - 1) / kSlice * kSlice;
    take_chunk(state);
  }
  [[unroll]] for (uint i = 0; i < kStateRows; ++i)
    F32x4(slice + (group * kStateRows + i) * (kChunkDim * 4)).v[0] = state[i];
}
