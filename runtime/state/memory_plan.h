#pragma once

#include <cstdint>

namespace ferry {

/// What the caches may use and what is wished for.
struct MemoryRequest {
  int64_t budget_bytes = 0;
  int64_t bytes_per_slot = 0;   // RecurrentState::bytes_per_slot; 0 if the model has no DeltaNet layer
  int64_t bytes_per_block = 0;  // KvCache::bytes_per_block; 0 if the model has no full-attention layer
  int64_t block_tokens = 16;    // tokens
  int64_t max_sequences = 1;    // that shall run at once
  int64_t max_context = 0;      // tokens of the longest sequence
  int64_t further_tokens = 0;   // that each further sequence comes with, at most max_context; 0: a quarter of that
  bool shares_blocks = false;   // whether there are further slots that come with less, and share the blocks of others
};

struct MemoryPlan {
  int64_t num_slots = 0;    // 1 ‥ max_sequences
  int64_t num_blocks = 0;   // 1 ‥ num_slots * blocks of max_context
  int64_t max_context = 0;  // tokens; less than asked for if the blocks do not hold that many
  int64_t bytes = 0;        // of both caches, <= budget_bytes
};

/// Of one slot and the blocks of one sequence of max_context.
int64_t full_context_budget(const MemoryRequest& request);

/// That, and where slots share blocks, all of max_sequences beside it: with less, one of the two is cut.
int64_t uncut_budget(const MemoryRequest& request);

/// Shares the budget between slots and blocks, in this order:
/// 1. one slot and the blocks of one full context, or as many as fit; if that is fewer and slots share blocks, a quarter of it
///    goes to further slots up to max_sequences, so that many short sequences run side by side where no full one fits;
/// 2. further slots up to max_sequences, each with the blocks of further_tokens or else of a quarter of the context, since few
///    sequences are full;
/// 3. where slots share blocks, further ones up to max_sequences, each with one block;
/// 4. further blocks, until every slot could hold a full context.
///
/// Throws Error{kInvalidArgument} with --memory and the bytes needed if not even one slot and one block fit.
MemoryPlan plan_memory(const MemoryRequest& request);

/// The least budget with which all of max_sequences get what they come with; budget_bytes does not matter.
int64_t whole_budget(const MemoryRequest& request);

}  // namespace ferry
