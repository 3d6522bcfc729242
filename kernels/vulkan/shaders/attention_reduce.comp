#version 460
// The second half of attention: a workgroup adds the partial sums of one row and head and up to
// kPiece columns, splits in ascending order. It has kPiece invocations.
#include "common.glsl"
#include "push_attention.h"
#include "attention_fold.glsl"
#include "attention_sequence.glsl"

layout(push_constant, scalar) uniform Push { AttentionReducePush p; };

const uint kPiece = 128;  // splits whose factors are made at once, an invocation each
const uint kBatch = 32;   // splits whose sums are loaded together; divides kPiece

shared float keep_factors[kPiece], split_factors[kPiece], weight_sums[kPiece];
shared float subgroup_largest[kPiece];
shared float last_largest;

// The largest score up to and including this invocation's split, `largest` being that of the splits before the piece.
float largest_so_far(float own, float largest) {
  float so_far = subgroupInclusiveMax(own);
  if (gl_SubgroupInvocationID == gl_SubgroupSize - 1) subgroup_largest[gl_SubgroupID] = so_far;
  barrier();
  for (uint i = 0; i < gl_SubgroupID; ++i) so_far = max(so_far, subgroup_largest[i]);
  return max(so_far, largest);
}

// Fills the factors of `count` splits from partial row `first`.
void make_factors(uint64_t first, uint count, float largest) {
  uint i = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  float own = NO_SCORE, weight_sum = 0.0;
  if (i < count) {
    F32 stats = F32(p.partial_stats + (first + i) * 8);
    own = stats.v[0];
    weight_sum = stats.v[1];
  }
  barrier();
  float behind = largest_so_far(own, largest);
  float before = subgroupShuffle(behind, max(gl_SubgroupInvocationID, 1) - 1);
  if (gl_SubgroupInvocationID == 0) {
    before = largest;
    for (uint s = 0; s < gl_SubgroupID; ++s) before = max(before, subgroup_largest[s]);
  }
  keep_factors[i] = weight_of(before, behind);
  split_factors[i] = weight_of(own, behind);
  weight_sums[i] = weight_sum;
  if (i + 1 == count) last_largest = behind;
  barrier();
}

// Takes `count` splits into the sum of a column and into the sum of weights.
void add_splits(uint64_t first, uint count, uint column, inout float sum, inout float weight_sum) {
  for (uint i = 0; i < count; i += kBatch) {
    float next[kBatch];
    [[unroll]] for (uint j = 0; j < kBatch; ++j) {
      uint split = min(i + j, count - 1);
      next[j] = F32(p.partial_sums + ((first + split) * p.head_dim + column) * 4).v[0];
    }
    [[unroll]] for (uint j = 0; j < kBatch; ++j) {
      float keep = keep_factors[i + j], weight = split_factors[i + j];
      sum = i + j < count ? fold(sum, keep, next[j], weight) : sum;
      weight_sum = i + j < count ? fold(weight_sum, keep, weight_sums[i + j], weight) : weight_sum;
    }
  }
}

void main() {
  uint parts = (p.head_dim + kPiece - 1) / kPiece;  // of the columns
  uint row = workgroup_row() / parts, part = workgroup_row() - row * parts;
  if (row >= p.num_rows) return;
  AttentionSequence sequence = AttentionSequences(p.sequences).v[find_sequence(p.sequences, p.num_sequences, row, true)];
  row -= sequence.first_reduced;
  uint token = row / p.num_heads, head = row - token * p.num_heads;
  uint num_splits = (sequence.num_past + token) / kSplitKeys + 1;
  uint64_t first = uint64_t(sequence.first_partial) + row * sequence.num_splits;
  uint64_t result = p.result + (uint64_t(sequence.first_row + token) * p.result_stride + head * p.head_dim) * kBytesOfT;
  uint own_column = part * kPiece + gl_LocalInvocationID.x, column = min(own_column, p.head_dim - 1);
  float largest = NO_SCORE, weight_sum = 0.0, sum = 0.0;
  for (uint done = 0; done < num_splits; done += kPiece) {
    uint count = min(kPiece, num_splits - done);
    make_factors(first + done, count, largest);
    add_splits(first + done, count, column, sum, weight_sum);
    largest = last_largest;
  }
  float inverse = 1.0 / weight_sum;
  if (own_column < p.head_dim) store_t(result, column, sum * inverse);
}
