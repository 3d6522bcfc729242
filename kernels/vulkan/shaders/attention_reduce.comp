#version 460
// The second half of attention: a workgroup adds the partial sums of one row and head, splits in ascending order.
#include "common.glsl"
#include "push_attention.h"
#include "attention_fold.glsl"
#include "attention_sequence.glsl"

layout(push_constant, scalar) uniform Push { AttentionReducePush p; };

const uint kPiece = 128;  // splits whose factors are made at once
const uint kBatch = 8;    // splits whose sums are loaded together

shared float largest_scores[kPiece], weight_sums[kPiece];
shared float keep_factors[kPiece], split_factors[kPiece];
shared float last_largest;

// Fills the factors of `count` splits from partial row `first`; `largest` is that of the splits before.
void make_factors(uint64_t first, uint count, float largest) {
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
    F32 stats = F32(p.partial_stats + (first + i) * 8);
    largest_scores[i] = stats.v[0];
    weight_sums[i] = stats.v[1];
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
    float before = largest;
    for (uint s = 0; s < i; ++s) before = max(before, largest_scores[s]);
    float behind = max(before, largest_scores[i]);
    keep_factors[i] = weight_of(before, behind);
    split_factors[i] = weight_of(largest_scores[i], behind);
    if (i + 1 == count) last_largest = behind;
  }
  barrier();
}

// Takes `count` splits into the sum of a column.
float add_column(uint64_t first, uint count, uint column, float sum) {
  for (uint i = 0; i < count; i += kBatch) {
    float next[kBatch];
    [[unroll]] for (uint j = 0; j < kBatch; ++j) {
      uint split = min(i + j, count - 1);
      next[j] = F32(p.partial_sums + ((first + split) * p.head_dim + column) * 4).v[0];
    }
    [[unroll]] for (uint j = 0; j < kBatch; ++j) {
      if (i + j < count) sum = fold(sum, keep_factors[i + j], next[j], split_factors[i + j]);
    }
  }
  return sum;
}

void main() {
  uint row = workgroup_row();
  if (row >= p.num_rows) return;
  AttentionSequence sequence = AttentionSequences(p.sequences).v[find_sequence(p.sequences, p.num_sequences, row, true)];
  row -= sequence.first_reduced;
  uint token = row / p.num_heads, head = row - token * p.num_heads;
  uint num_splits = (sequence.num_past + token) / kSplitKeys + 1;
  uint64_t first = uint64_t(sequence.first_partial) + row * sequence.num_splits;
  uint64_t result = p.result + (uint64_t(sequence.first_row + token) * p.result_stride + head * p.head_dim) * kBytesOfT;

  for (uint first_column = 0; first_column < p.head_dim; first_column += gl_WorkGroupSize.x) {
    uint column = min(first_column + gl_LocalInvocationID.x, p.head_dim - 1);
    float largest = NO_SCORE, weight_sum = 0.0, sum = 0.0;
    for (uint done = 0; done < num_splits; done += kPiece) {
      uint count = min(kPiece, num_splits - done);
      make_factors(first + done, count, largest);
      for (uint i = 0; i < count; ++i) weight_sum = fold(weight_sum, keep_factors[i], weight_sums[i], split_factors[i]);
      sum = add_column(first + done, count, column, sum);
      largest = last_largest;
    }
    float inverse = 1.0 / weight_sum;
    if (first_column + gl_LocalInvocationID.x < p.head_dim) store_t(result, column, sum * inverse);
  }
}
