#include "runtime/state/memory_plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kShare = 4;  // a further slot comes with 1 / kShare of a full context's blocks
constexpr int64_t kMaxCount =
    std::numeric_limits<int32_t>::max();  // block ids are int32; keeps products of two counts in range

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// How many things of `bytes` each fit `left`, at most `wanted`.
int64_t fitting(int64_t left, int64_t bytes, int64_t wanted) { return bytes == 0 ? wanted : std::min(wanted, left / bytes); }

void check(const MemoryRequest& request) {
  FERRY_CHECK(request.bytes_per_slot >= 0 && request.bytes_per_block >= 0)
      << request.bytes_per_slot << " bytes a slot, " << request.bytes_per_block << " a block";
  FERRY_CHECK_GE(request.block_tokens, 1);
  FERRY_CHECK(request.max_sequences >= 1 && request.max_sequences <= kMaxCount) << request.max_sequences << " sequences";
  FERRY_CHECK(request.max_context >= 1 && request.max_context <= kMaxCount) << request.max_context << " tokens";
  FERRY_CHECK(request.further_tokens >= 0 && request.further_tokens <= request.max_context)
      << request.further_tokens << " tokens";
}

int64_t full_blocks_of(const MemoryRequest& request) { return ceil_div(request.max_context, request.block_tokens); }

/// Blocks that a further slot comes with.
int64_t share_blocks_of(const MemoryRequest& request) {
  return request.further_tokens > 0 ? ceil_div(request.further_tokens, request.block_tokens)
                                    : ceil_div(full_blocks_of(request), kShare);
}

/// Of a slot that shares the blocks of others, and has one at least.
int64_t bare_slot_bytes(const MemoryRequest& request) { return request.bytes_per_slot + request.bytes_per_block; }

/// How many such slots `left` holds, at most `wanted`.
int64_t bare_slots(const MemoryRequest& request, int64_t left, int64_t wanted) {
  return request.shares_blocks ? fitting(left, bare_slot_bytes(request), wanted) : 0;
}

}  // namespace

int64_t full_context_budget(const MemoryRequest& request) {
  return request.bytes_per_slot + full_blocks_of(request) * request.bytes_per_block;
}

int64_t uncut_budget(const MemoryRequest& request) {
  const int64_t further_bytes = request.shares_blocks ? (request.max_sequences - 1) * bare_slot_bytes(request) : 0;
  return full_context_budget(request) + further_bytes;
}

MemoryPlan plan_memory(const MemoryRequest& request) {
  check(request);
  const int64_t full_blocks = full_blocks_of(request);
  const int64_t least_bytes = request.bytes_per_slot + request.bytes_per_block;
  if (request.budget_bytes < least_bytes) {
    throw_invalid("--memory is " + std::to_string(request.budget_bytes) + " bytes; allowed: at least " +
                  std::to_string(least_bytes) + " for one sequence of " + std::to_string(request.block_tokens) +
                  " tokens, or " + std::to_string(full_context_budget(request)) + " for one of the context's " +
                  std::to_string(request.max_context));
  }
  int64_t left = request.budget_bytes - request.bytes_per_slot;
  int64_t num_blocks = fitting(left, request.bytes_per_block, full_blocks);
  int64_t further_slots = 0;
  if (num_blocks < full_blocks) {
    further_slots = bare_slots(request, left / kShare, request.max_sequences - 1);
    num_blocks = 0;
    left -= further_slots * request.bytes_per_slot;
  } else {
    const int64_t share_blocks = share_blocks_of(request);
    const int64_t share_bytes = request.bytes_per_slot + share_blocks * request.bytes_per_block;
    left -= num_blocks * request.bytes_per_block;
    further_slots = fitting(left, share_bytes, request.max_sequences - 1);
    num_blocks += further_slots * share_blocks;
    left -= further_slots * share_bytes;
    const int64_t num_bare = bare_slots(request, left, request.max_sequences - 1 - further_slots);
    further_slots += num_bare;
    left -= num_bare * request.bytes_per_slot;
  }
  const int64_t num_slots = 1 + further_slots;

  const int64_t wanted_blocks = std::min(num_slots * full_blocks, kMaxCount);
  num_blocks = std::min(num_blocks, kMaxCount);
  num_blocks += fitting(left, request.bytes_per_block, wanted_blocks - num_blocks);
  return {.num_slots = num_slots,
          .num_blocks = num_blocks,
          .max_context = std::min(request.max_context, num_blocks * request.block_tokens),
          .bytes = num_slots * request.bytes_per_slot + num_blocks * request.bytes_per_block};
}

int64_t whole_budget(const MemoryRequest& request) {
  check(request);
  const int64_t num_blocks = full_blocks_of(request) + (request.max_sequences - 1) * share_blocks_of(request);
  return request.max_sequences * request.bytes_per_slot + num_blocks * request.bytes_per_block;
}

}  // namespace ferry
