#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Of delta_gates and gated_delta_rule. Strides count elements.

PUSH_BEGIN

struct DeltaGatesPush {
  uint64_t a, b, a_log, dt_bias, decay, beta;
  uint a_stride, b_stride;
  uint num_rows, num_heads;
};

// A sequence of gated_delta_rule.
struct DeltaSequence {
  uint64_t state;                            // float [num_v_heads, k_dim, v_dim]
  uint64_t held_qkv, held_decay, held_beta;  // of the rows that are replayed, dense
  uint first_row, num_tokens;
  uint num_replayed, num_taken;  // rows of the latter are the span's own
  uint first_chunk, unused;      // of its chunks among those of all sequences
};

// A workgroup of the recurrent form has a slice of a value head's columns, an invocation a quad of these in a sixteenth of the
// rows of the state.
const uint kDeltaInvocations = 128;
const uint kDeltaSliceColumns = 32;
// Likewise where cooperative matrices of as many rows and columns work.
const uint kDeltaMatrixColumns = 16, kDeltaMatrixSubgroups = 4;

// A sequence of gated_delta_mix.
struct DeltaMixSequence {
  uint64_t conv_state;  // T [kernel - 1, channels]
  uint64_t state;       // float [num_v_heads, k_dim, v_dim]
  uint row, unused;
};

struct DeltaMixPush {
  uint64_t x, conv_weight;
  uint64_t a, b, a_log, dt_bias;
  uint64_t gate, norm_weight, result;  // gate and result: a row a (token, value head)
  uint64_t sequences;                  // DeltaMixSequence[num_sequences]
  uint x_stride, a_stride, b_stride, gate_stride, result_stride;
  uint num_sequences, num_k_heads, num_v_heads;
  float eps;
  uint rounds_weighted;
};

// The chunk form takes heads of 128 by 128. Of each (chunk, value head) the first dispatch leaves, in floats: T and M
// [64, 64], then the factors of X, of q and of k [64] each, and the chunk's whole decay.
const uint kChunkDim = 128, kMaxChunk = 64;
const uint kChunkInvocations = 256;
const uint kChunkT = 0, kChunkM = 4096, kChunkFactors = 8192, kChunkFloats = 8448;
const uint kChunkWholeDecay = 192;  // behind kChunkFactors

// Where cooperative matrices multiply bf16, an fp32 number is a sum of three bf16 terms. Of each (chunk, value head) the first
// dispatch then leaves, in bytes: the fragments of T and of M, 16 by 16, on and below the diagonal, row by row, three terms
// each; then the factors as above. And of each (chunk, key head) the fragments of keys and of queries [64, 128], and of keys
// [128, 64], in bf16.
const uint kTerms = 3;
const uint kTermBytes = 512;
const uint kTriangleBytes = 10 * kTerms * kTermBytes;
const uint kTermsFactors = 2 * kTriangleBytes, kTermsBytes = kTermsFactors + 1024;
const uint kCopyBytes = 16384;

struct DeltaChunk {
  uint first_row, num_rows;
};

struct DeltaRulePush {
  uint64_t qkv, decay, beta, result;
  uint64_t sequences;  // DeltaSequence[num_sequences]
  uint64_t chunks;     // DeltaChunk[num_chunks], of the chunk form
  uint64_t prepared;   // [num_chunks, num_v_heads, kChunkFloats or kTermsBytes]
  uint64_t copies;     // [num_chunks, num_k_heads, 3, kCopyBytes]; none where there are no matrices
  uint qkv_stride, result_stride;
  uint qkv_columns;
  uint num_sequences, num_chunks, chunk;
  uint num_k_heads, num_v_heads;
};

PUSH_END
