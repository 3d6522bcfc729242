#version 460
// The second dispatch of gated_delta_rule's chunk form where cooperative matrices multiply bf16: a workgroup has 16 columns of
// one value head of one sequence, keeps that slice of the state in fragments, and walks through the chunks.
//
// Products are as good as those of fp32: keys and queries are bf16, and each fp32 number is the sum of three bf16 terms, of
// which only products below 2^-24 of the whole are left out. Terms are summed up apart, in fp32.
//
// A subgroup has a quarter of the chunk's tokens and of the state's rows, and hands what it makes to the others as terms in
// shared memory.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_bfloat16 : enable
#include "common.glsl"
#include "units.glsl"
#include "push_delta.h"
#include "delta_chunk.glsl"

layout(constant_id = 2) const uint kSubgroupSize = 32;
layout(constant_id = 3) const uint kResultAligned = 1;  // whether rows of the result begin at 16 bytes

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer DeltaSequences { DeltaSequence v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Elements { bfloat16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Floats { float v[]; };

const uint kSide = kDeltaMatrixColumns;  // of every fragment
#define LEFT coopmat<bfloat16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseA>
#define RIGHT coopmat<bfloat16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseAccumulator>

const uint kSlices = kChunkDim / kSide;
const uint kDimSteps = kChunkDim / kSide, kTokenSteps = kMaxChunk / kSide;  // fragments; subgroups are kTokenSteps
const uint kStateFragments = kDimSteps / kTokenSteps;                       // of a subgroup
const uint kFragmentUnits = kSide * kSide / kUnit;                          // of 8 elements
const uint kLaneUnits = kSubgroupSize < kFragmentUnits ? kFragmentUnits / kSubgroupSize : 1;

// Rows of 16 elements, and one unit more that keeps them in different banks: [term][row] of the state, in the same place
// [term][token] of N and of N with the factors of keys; then [term][token] of X.
const uint kRowUnits = kSide / kUnit + 1;
const uint kNAt = 0, kFactoredNAt = kTerms * kMaxChunk, kXAt = kTerms * kChunkDim;
shared uvec4 terms[(kXAt + kTerms * kMaxChunk) * kRowUnits];
shared vec4 scratch[kTokenSteps * kSide * kSide / 4];

uint k_head, v_head;
uint first_column;  // of the slice
uint64_t prepared;  // of the chunk and value head
SUMS state[kStateFragments];
LEFT keys[kDimSteps], queries[kDimSteps], transposed_keys[kStateFragments * kTokenSteps];
LEFT t_terms[kTokenSteps * kTerms], m_terms[kTokenSteps * kTerms];  // of the subgroup's rows
float query_parts[kLaneUnits][kUnit];                               // diag(e^G) Q S

// Units of a fragment, in turn: two a row. A lane behind the last has the last.
uint lane_unit(uint i) { return min(gl_SubgroupInvocationID + i * kSubgroupSize, kFragmentUnits - 1); }
uint lane_token(uint i) { return gl_SubgroupID * kSide + lane_unit(i) / 2; }

uint64_t copies_of(uint chunk_idx) { return p.copies + (uint64_t(chunk_idx) * p.num_k_heads + k_head) * (3 * kCopyBytes); }

void load_triangle(uint64_t triangle, out LEFT fragments[kTokenSteps * kTerms]) {
  Elements elements = Elements(triangle);
  uint first = gl_SubgroupID * (gl_SubgroupID + 1) / 2;
  [[unroll]] for (uint step = 0; step < kTokenSteps; ++step) {
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      uint at = ((first + min(step, gl_SubgroupID)) * kTerms + term) * (kSide * kSide);
      coopMatLoad(fragments[step * kTerms + term], elements.v, at, kSide, gl_CooperativeMatrixLayoutRowMajor);
    }
  }
}

// What a chunk begins with, and what it needs later.
void load_first(uint chunk_idx) {
  Elements elements = Elements(copies_of(chunk_idx));
  [[unroll]] for (uint step = 0; step < kDimSteps; ++step) {
    uint at = gl_SubgroupID * kSide * kChunkDim + step * kSide;
    coopMatLoad(keys[step], elements.v, at, kChunkDim, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(queries[step], elements.v, kMaxChunk * kChunkDim + at, kChunkDim, gl_CooperativeMatrixLayoutRowMajor);
  }
  load_triangle(prepared_of(chunk_idx, v_head) + kTAt, t_terms);
}
void load_rest(uint chunk_idx) {
  load_triangle(prepared + kMAt, m_terms);
  Elements elements = Elements(copies_of(chunk_idx) + 2 * kCopyBytes);
  [[unroll]] for (uint j = 0; j < kStateFragments; ++j) {
    [[unroll]] for (uint step = 0; step < kTokenSteps; ++step) {
      uint at = (gl_SubgroupID * kStateFragments + j) * kSide * kMaxChunk + step * kSide;
      coopMatLoad(transposed_keys[j * kTokenSteps + step], elements.v, at, kMaxChunk, gl_CooperativeMatrixLayoutRowMajor);
    }
  }
}

// The elements of a fragment that this lane has.
void take_apart(SUMS sums, out float x[kLaneUnits][kUnit]) {
  uint own = gl_SubgroupID * (kSide * kSide / 4);
  subgroupBarrier();
  coopMatStore(sums, scratch, own, kSide / 4, gl_CooperativeMatrixLayoutRowMajor);
  subgroupBarrier();
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    vec4 first = scratch[own + 2 * lane_unit(i)], second = scratch[own + 2 * lane_unit(i) + 1];
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      x[i][c] = first[c];
      x[i][4 + c] = second[c];
    }
  }
}

// Leaves the terms of a lane's elements at rows first_row, of num_rows each term.
void put_terms(uint first_row, uint num_rows, float x[kLaneUnits][kUnit]) {
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      uvec4 unit = uvec4(0);
      [[unroll]] for (uint c = 0; c < kUnit; ++c) {
        uint bits = bf16_bits(x[i][c]);
        unit[c / 2] |= bits << (16 * (c % 2));
        precise float rest = x[i][c] - uintBitsToFloat(bits << 16);
        x[i][c] = rest;
      }
      terms[(first_row + term * num_rows + lane_unit(i) / 2) * kRowUnits + lane_unit(i) % 2] = unit;
    }
  }
}

void load_term(uint first_row, uint num_rows, uint term, uint step, out RIGHT right) {
  coopMatLoad(right, terms, (first_row + term * num_rows + step * kSide) * kRowUnits, kRowUnits,
              gl_CooperativeMatrixLayoutRowMajor);
}

SUMS add_terms(SUMS sums[kTerms]) { return sums[0] + (sums[1] + sums[2]); }

// K S and Q S of the subgroup's tokens, before their factors.
void multiply_state(out SUMS key_products, out SUMS query_products) {
  SUMS key_sums[kTerms], query_sums[kTerms];
  [[unroll]] for (uint term = 0; term < kTerms; ++term) key_sums[term] = query_sums[term] = SUMS(0.0);
  [[unroll]] for (uint step = 0; step < kDimSteps; ++step) {
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      RIGHT right;
      load_term(0, kChunkDim, term, step, right);
      key_sums[term] = coopMatMulAdd(keys[step], right, key_sums[term]);
      query_sums[term] = coopMatMulAdd(queries[step], right, query_sums[term]);
    }
  }
  key_products = add_terms(key_sums);
  query_products = add_terms(query_sums);
}

// A triangle's rows of the subgroup times X or N; fragments behind the diagonal are zeros.
SUMS multiply_triangle(LEFT lefts[kTokenSteps * kTerms], uint first_row) {
  SUMS sums[kTerms];  // of products of the first terms; of a first and a second one; of smaller ones
  [[unroll]] for (uint i = 0; i < kTerms; ++i) sums[i] = SUMS(0.0);
  [[unroll]] for (uint step = 0; step < kTokenSteps; ++step) {
    if (step > gl_SubgroupID) break;
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      RIGHT right;
      load_term(first_row, kMaxChunk, term, step, right);
      [[unroll]] for (uint i = 0; i + term < kTerms; ++i) {
        sums[i + term] = coopMatMulAdd(lefts[step * kTerms + i], right, sums[i + term]);
      }
    }
  }
  return add_terms(sums);
}

// X = V - diag(e^G) K S, and diag(e^G) Q S.
void take_state_in() {
  uvec4 values[kLaneUnits];
  float x_factors[kLaneUnits], q_factors[kLaneUnits];
  F32 factors = F32(prepared + kFactorsAt);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    uint token = lane_token(i), column = v_head * kChunkDim + first_column + lane_unit(i) % 2 * kUnit;
    values[i] = uvec4(0);
    if (token < chunk.num_rows)
      values[i] = load_unit(token_row(token), 2 * p.num_k_heads * kChunkDim + column, p.qkv_columns, kAligned != 0);
    x_factors[i] = factors.v[token];
    q_factors[i] = factors.v[kMaxChunk + token];
  }
  SUMS key_products, query_products;
  multiply_state(key_products, query_products);
  float x[kLaneUnits][kUnit];
  take_apart(key_products, x);
  take_apart(query_products, query_parts);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    vec4 first = unit_quad(values[i], 0), second = unit_quad(values[i], 1);
    [[unroll]] for (uint c = 0; c < kUnit; ++c) {
      x[i][c] = fma(x[i][c], -x_factors[i], c < 4 ? first[c % 4] : second[c % 4]);
      query_parts[i][c] *= q_factors[i];
    }
  }
  put_terms(kXAt + gl_SubgroupID * kSide, kMaxChunk, x);
}

// N = T X
void make_corrections() {
  F32 factors = F32(prepared + kFactorsAt);
  float n[kLaneUnits][kUnit];
  take_apart(multiply_triangle(t_terms, kXAt), n);
  put_terms(kNAt + gl_SubgroupID * kSide, kMaxChunk, n);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    float factor = factors.v[2 * kMaxChunk + lane_token(i)];
    [[unroll]] for (uint c = 0; c < kUnit; ++c) n[i][c] *= factor;
  }
  put_terms(kFactoredNAt + gl_SubgroupID * kSide, kMaxChunk, n);
}

// O = diag(e^G) Q S + M N
void store_result() {
  float o[kLaneUnits][kUnit];
  take_apart(multiply_triangle(m_terms, kNAt), o);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    uint token = lane_token(i), column = v_head * kChunkDim + first_column + lane_unit(i) % 2 * kUnit;
    if (token >= chunk.num_rows) continue;
    uint64_t to = p.result + (uint64_t(chunk.first_row + token) * p.result_stride + column) * kBytesOfT;
    [[unroll]] for (uint c = 0; c < kUnit; ++c) o[i][c] += query_parts[i][c];
    if (kResultAligned != 0) {
      uvec4 unit;
      [[unroll]] for (uint c = 0; c < 4; ++c) unit[c] = bf16_bits(o[i][2 * c]) | bf16_bits(o[i][2 * c + 1]) << 16;
      U32x4(to).v[0] = unit;
    } else {
      [[unroll]] for (uint c = 0; c < kUnit; ++c) store_t(to, c, o[i][c]);
    }
  }
}

// S <- e^(G_last) S + sum_s e^(G_last - G_s) k_s N_s^T
void update_state() {
  float whole_decay = F32(prepared + kFactorsAt).v[kChunkWholeDecay];
  SUMS sums[kStateFragments * kTerms];
  [[unroll]] for (uint i = 0; i < kStateFragments * kTerms; ++i) sums[i] = SUMS(0.0);
  [[unroll]] for (uint step = 0; step < kTokenSteps; ++step) {
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      RIGHT right;
      load_term(kFactoredNAt, kMaxChunk, term, step, right);
      [[unroll]] for (uint j = 0; j < kStateFragments; ++j) {
        uint at = j * kTerms + term;
        sums[at] = coopMatMulAdd(transposed_keys[j * kTokenSteps + step], right, sums[at]);
      }
    }
  }
  [[unroll]] for (uint j = 0; j < kStateFragments; ++j) {
    SUMS change = sums[j * kTerms] + (sums[j * kTerms + 1] + sums[j * kTerms + 2]);
    state[j] = state[j] * whole_decay + change;
  }
}

void hand_out_state() {
  [[unroll]] for (uint j = 0; j < kStateFragments; ++j) {
    float x[kLaneUnits][kUnit];
    take_apart(state[j], x);
    put_terms((gl_SubgroupID * kStateFragments + j) * kSide, kChunkDim, x);
  }
}

void main() {
  uint head_idx = workgroup_row() / kSlices;
  uint sequence_idx = head_idx / p.num_v_heads;
  if (sequence_idx >= p.num_sequences) return;
  v_head = head_idx - sequence_idx * p.num_v_heads;
  k_head = v_head / (p.num_v_heads / p.num_k_heads);
  first_column = (workgroup_row() - head_idx * kSlices) * kSide;
  DeltaSequence sequence = DeltaSequences(p.sequences).v[sequence_idx];
  uint first_chunk = sequence.first_chunk, num_chunks = (sequence.num_tokens + p.chunk - 1) / p.chunk;
  Floats states = Floats(sequence.state + uint64_t(v_head) * (kChunkDim * kChunkDim * 4));
  uint own_state = gl_SubgroupID * kStateFragments * kSide * kChunkDim + first_column;
  load_first(first_chunk);
  [[unroll]] for (uint j = 0; j < kStateFragments; ++j)
    coopMatLoad(state[j], states.v, own_state + j * kSide * kChunkDim, kChunkDim, gl_CooperativeMatrixLayoutRowMajor);
  for (uint i = 0; i < num_chunks; ++i) {
    chunk = DeltaChunks(p.chunks).v[first_chunk + i];
    prepared = prepared_of(first_chunk + i, v_head);
    hand_out_state();
    barrier();
    take_state_in();
    load_rest(first_chunk + i);
    barrier();
    make_corrections();
    barrier();
    store_result();
    if (i + 1 < num_chunks) load_first(first_chunk + i + 1);
    update_state();
    barrier();
  }
  [[unroll]] for (uint j = 0; j < kStateFragments; ++j)
    coopMatStore(state[j], states.v, own_state + j * kSide * kChunkDim, kChunkDim, gl_CooperativeMatrixLayoutRowMajor);
}
