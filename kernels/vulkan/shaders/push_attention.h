#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Of attention and of the cache it reads. Strides count elements; "query rows" are the (token, head) pairs of one sequence that
// share a kv head, tokens outermost.

PUSH_BEGIN

// Keys that are summed up by themselves, counted from position 0. Sums of such splits are added in ascending order.
const uint kSplitKeys = 128;
const uint kAttentionInvocations = 256;

// A sequence as the kernels of attention see it.
struct AttentionSequence {
  uint first_row, num_tokens, num_past;
  uint first_block;    // of its ids in the block table
  uint first_task;     // of its workgroups, for one kv head
  uint num_splits;     // that workgroups of their own sum up, of its last row; 0: a workgroup sums up all splits of its rows
  uint first_partial;  // of the rows of partial sums, [num_tokens, num_heads, num_splits]; none if num_splits < 2
  uint first_reduced;  // of the (token, head) pairs whose partial sums are to be added
};

struct AttentionPush {
  uint64_t q, keys, values, result;
  uint64_t sequences;      // AttentionSequence[num_sequences]
  uint64_t blocks;         // int, the ids of all sequences
  uint64_t partial_sums;   // float [partial rows, head_dim]
  uint64_t partial_stats;  // float [partial rows, 2]: the largest score, and the sum of weights
  uint q_stride, result_stride;
  uint num_sequences, num_tasks;
  uint num_heads, num_kv_heads, block_tokens;
  float scale;
};

struct AttentionReducePush {
  uint64_t partial_sums, partial_stats, result, sequences;
  uint result_stride;
  uint num_sequences, num_rows;
  uint num_heads, head_dim;
};

// Where a row of keys and values goes: (block * num_kv_heads * block_tokens + slot), for head 0.
struct KvPlace {
  uint row, place;
};

struct KvAppendPush {
  uint64_t k, v, keys, values;
  uint64_t places;          // KvPlace[num_rows]
  uint k_stride, v_stride;  // bytes
  uint num_rows, num_kv_heads;
  uint head_bytes, block_tokens;
};

PUSH_END
