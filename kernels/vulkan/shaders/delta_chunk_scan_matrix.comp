#version 460
// The second dispatch of gated_delta_rule's chunk form where cooperative matrices multiply bf16: a workgroup has 16 columns of
// one value head of one sequence, keeps that slice of the state in fragments, and walks through the chunks.
//
// Products are nearly those of fp32: keys and queries are bf16, and each fp32 number is the sum of three bf16 terms, of which
// only products below 2^-21 of the whole, and 2^-24 in the mean, are left out. Terms are summed up apart, in fp32.
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

// Terms lie as [term][column][row], with one unit more a column that keeps columns in different banks: of the state; in the same
// place of N, and of N with the factors of keys; then of X.
const uint kStateStride = kChunkDim / kUnit + 1, kTokenStride = kMaxChunk / kUnit + 1;  // units a column
const uint kNAt = 0, kFactoredNAt = kTerms * kSide * kTokenStride, kXAt = 2 * kFactoredNAt;
shared uvec4 terms[kXAt + kTerms * kSide * kTokenStride];
shared vec4 scratch[kTokenSteps * kSide * kSide / 4];

uint k_head, v_head;
uint first_column;  // of the slice
uint64_t prepared;  // of the chunk and value head
SUMS state[kStateFragments];
LEFT keys[kDimSteps], queries[kDimSteps], transposed_keys[kStateFragments * kTokenSteps];
LEFT t_terms[kTokenSteps * kTerms], m_terms[kTokenSteps * kTerms];  // of the subgroup's rows
SUMS query_part;                                                    // diag(e^G) Q S

// Units of a fragment, in turn: two a row, or two a column. A lane behind the last has the last.
uint lane_unit(uint i) { return min(gl_SubgroupInvocationID + i * kSubgroupSize, kFragmentUnits - 1); }

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

void load_fragment(uint64_t copies, uint fragment, out LEFT left) {
  coopMatLoad(left, Elements(copies).v, fragment * (kSide * kSide), kSide, gl_CooperativeMatrixLayoutRowMajor);
}

// What a chunk begins with, and what it needs later.
void load_keys_and_queries(uint chunk_idx) {
  [[unroll]] for (uint step = 0; step < kDimSteps; ++step) {
    load_fragment(copies_of(chunk_idx), gl_SubgroupID * kDimSteps + step, keys[step]);
    load_fragment(copies_of(chunk_idx) + kCopyBytes, gl_SubgroupID * kDimSteps + step, queries[step]);
  }
}
void load_rest(uint chunk_idx) {
  load_triangle(prepared + kMAt, m_terms);
  [[unroll]] for (uint i = 0; i < kStateFragments * kTokenSteps; ++i) {
    load_fragment(copies_of(chunk_idx) + 2 * kCopyBytes, gl_SubgroupID * (kStateFragments * kTokenSteps) + i, transposed_keys[i]);
  }
}

// This lane's part of the subgroup's scratch.
uint lane_scratch(uint i) { return gl_SubgroupID * (kSide * kSide / 4) + 2 * lane_unit(i); }

void read_scratch(out float x[kLaneUnits][kUnit]) {
  subgroupBarrier();
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    vec4 first = scratch[lane_scratch(i)], second = scratch[lane_scratch(i) + 1];
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      x[i][c] = first[c];
      x[i][4 + c] = second[c];
    }
  }
}

// The elements of a fragment that this lane has: units of rows, or of columns.
void take_rows(SUMS sums, out float x[kLaneUnits][kUnit]) {
  subgroupBarrier();
  coopMatStore(sums, scratch, gl_SubgroupID * (kSide * kSide / 4), kSide / 4, gl_CooperativeMatrixLayoutRowMajor);
  read_scratch(x);
}
void take_columns(SUMS sums, out float x[kLaneUnits][kUnit]) {
  subgroupBarrier();
  coopMatStore(sums, scratch, gl_SubgroupID * (kSide * kSide / 4), kSide / 4, gl_CooperativeMatrixLayoutColumnMajor);
  read_scratch(x);
}

// Leaves the terms of a lane's elements, which are of columns, in row fragment `fragment`.
void put_terms(uint first, uint stride, uint fragment, float x[kLaneUnits][kUnit]) {
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    uint column = lane_unit(i) / 2, half_row = lane_unit(i) % 2;
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      uint bits[kUnit];
      [[unroll]] for (uint c = 0; c < kUnit; ++c) bits[c] = next_term(x[i][c]);
      uvec4 unit;
      [[unroll]] for (uint c = 0; c < 4; ++c) unit[c] = bits[2 * c] >> 16 | bits[2 * c + 1];
      terms[first + (term * kSide + column) * stride + 2 * fragment + half_row] = unit;
    }
  }
}

void load_term(uint first, uint stride, uint term, uint fragment, out RIGHT right) {
  coopMatLoad(right, terms, first + term * kSide * stride + 2 * fragment, stride, gl_CooperativeMatrixLayoutColumnMajor);
}

SUMS add_terms(SUMS sums[kTerms]) { return sums[0] + (sums[1] + sums[2]); }

// K S and Q S of the subgroup's tokens, before their factors.
void multiply_state(out SUMS key_products, out SUMS query_products) {
  SUMS key_sums[kTerms], query_sums[kTerms];
  [[unroll]] for (uint term = 0; term < kTerms; ++term) key_sums[term] = query_sums[term] = SUMS(0.0);
  [[unroll]] for (uint step = 0; step < kDimSteps; ++step) {
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      RIGHT right;
      load_term(0, kStateStride, term, step, right);
      key_sums[term] = coopMatMulAdd(keys[step], right, key_sums[term]);
      query_sums[term] = coopMatMulAdd(queries[step], right, query_sums[term]);
    }
  }
  key_products = add_terms(key_sums);
  query_products = add_terms(query_sums);
}

// A triangle's rows of the subgroup times X or N; fragments behind the diagonal are zeros.
SUMS multiply_triangle(LEFT lefts[kTokenSteps * kTerms], uint first) {
  SUMS sums[kTerms];  // of products of the first terms; of a first and a second one; of smaller ones
  [[unroll]] for (uint i = 0; i < kTerms; ++i) sums[i] = SUMS(0.0);
  [[unroll]] for (uint step = 0; step < kTokenSteps; ++step) {
    if (step > gl_SubgroupID) break;
    [[unroll]] for (uint term = 0; term < kTerms; ++term) {
      RIGHT right;
      load_term(first, kTokenStride, term, step, right);
      [[unroll]] for (uint i = 0; i + term < kTerms; ++i) {
        sums[i + term] = coopMatMulAdd(lefts[step * kTerms + i], right, sums[i + term]);
      }
    }
  }
  return add_terms(sums);
}

// The slice's values of the subgroup's tokens.
SUMS load_values(uvec4 units[kLaneUnits]) {
  subgroupBarrier();
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    scratch[lane_scratch(i)] = unit_quad(units[i], 0);
    scratch[lane_scratch(i) + 1] = unit_quad(units[i], 1);
  }
  subgroupBarrier();
  SUMS values;
  coopMatLoad(values, scratch, gl_SubgroupID * (kSide * kSide / 4), kSide / 4, gl_CooperativeMatrixLayoutRowMajor);
  return values;
}

// X = V - diag(e^G) K S, and diag(e^G) Q S.
void take_state_in() {
  uvec4 units[kLaneUnits];
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    uint token = gl_SubgroupID * kSide + lane_unit(i) / 2;
    uint column = (2 * p.num_k_heads + v_head) * kChunkDim + first_column + lane_unit(i) % 2 * kUnit;
    units[i] = uvec4(0);
    if (token < chunk.num_rows) units[i] = load_unit(token_row(token), column, p.qkv_columns, kAligned != 0);
  }
  Floats factors = Floats(prepared + kFactorsAt);
  SUMS x_factors, q_factors, key_products;  // factors are the same in every column: a stride of 0
  coopMatLoad(x_factors, factors.v, gl_SubgroupID * kSide, 0, gl_CooperativeMatrixLayoutColumnMajor);
  coopMatLoad(q_factors, factors.v, kMaxChunk + gl_SubgroupID * kSide, 0, gl_CooperativeMatrixLayoutColumnMajor);
  multiply_state(key_products, query_part);
  SUMS x = load_values(units);
  for (uint j = 0; j < x.length(); ++j) {
    x[j] = fma(key_products[j], -x_factors[j], x[j]);
    query_part[j] = query_part[j] * q_factors[j];
  }
  float columns[kLaneUnits][kUnit];
  take_columns(x, columns);
  put_terms(kXAt, kTokenStride, gl_SubgroupID, columns);
}

// N = T X
void make_corrections() {
  float n[kLaneUnits][kUnit];
  take_columns(multiply_triangle(t_terms, kXAt), n);
  put_terms(kNAt, kTokenStride, gl_SubgroupID, n);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    uint token = gl_SubgroupID * kSide + lane_unit(i) % 2 * kUnit;
    [[unroll]] for (uint c = 0; c < kUnit; c += 4) {
      vec4 factors = F32x4(prepared + kFactorsAt + (2 * kMaxChunk + token + c) * 4).v[0];
      [[unroll]] for (uint d = 0; d < 4; ++d) n[i][c + d] *= factors[d];
    }
  }
  put_terms(kFactoredNAt, kTokenStride, gl_SubgroupID, n);
}

// O = diag(e^G) Q S + M N
void store_result() {
  float o[kLaneUnits][kUnit];
  take_rows(query_part + multiply_triangle(m_terms, kNAt), o);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    uint token = gl_SubgroupID * kSide + lane_unit(i) / 2;
    uint column = v_head * kChunkDim + first_column + lane_unit(i) % 2 * kUnit;
    if (token >= chunk.num_rows) continue;
    uint64_t to = p.result + (uint64_t(chunk.first_row + token) * p.result_stride + column) * kBytesOfT;
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
      load_term(kFactoredNAt, kTokenStride, term, step, right);
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
    take_columns(state[j], x);
    put_terms(0, kStateStride, gl_SubgroupID * kStateFragments + j, x);
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
  [[unroll]] for (uint j = 0; j < kStateFragments; ++j)
    coopMatLoad(state[j], states.v, own_state + j * kSide * kChunkDim, kChunkDim, gl_CooperativeMatrixLayoutRowMajor);
  for (uint i = 0; i < num_chunks; ++i) {
    chunk = DeltaChunks(p.chunks).v[first_chunk + i];
    prepared = prepared_of(first_chunk + i, v_head);
    load_keys_and_queries(first_chunk + i);
    load_triangle(prepared + kTAt, t_terms);
    hand_out_state();
    barrier();
    take_state_in();
    load_rest(first_chunk + i);
    barrier();
    make_corrections();
    barrier();
    store_result();
    update_state();
    barrier();
  }
  [[unroll]] for (uint j = 0; j < kStateFragments; ++j)
    coopMatStore(state[j], states.v, own_state + j * kSide * kChunkDim, kChunkDim, gl_CooperativeMatrixLayoutRowMajor);
}
