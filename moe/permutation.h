#pragma once

#include <cstdint>
#include <span>
#include <vector>

// Which token goes to which rank, and in what order its rows lie there. Pure index work; no data moves here.
//
// Example: 3 tokens, top-2, experts {0,1} on rank A and {2,3} on rank B.
//
//   topk_idx      t0: [2 0]   t1: [0 1]   t2: [3 2]
// rank A tokens t0 t1 expert 0: rows t0 t1 | expert 1: row t1 token_idx [0 1], row_token [0 1 1], counts [2 1]
//
// rank B tokens t0 t2 expert 2: rows t0 t2 | expert 3: row t2 token_idx [0 2], row_token [0 1 1], counts [2 1]
//
//   slots         t0: [B0 A0]  t1: [A1 A2]  t2: [B2 B1]      where the result of (token, k) is to be found
//
// A token travels to a rank once, however many of its experts live there; the rank repeats it per expert (permute) and
// returns one row per (token, k), which the coordinator adds in the order of k (unpermute and combine).

namespace ferry {

/// Who computes an expert's rows, and at which place among its experts it has it.
struct ExpertOwner {
  int32_t rank_idx = -1;
  int32_t local_idx = -1;
};

/// A (token, k) that this dispatch leaves out.
inline constexpr int32_t kNoExpert = -1;

/// One rank's part of a layer's tokens.
struct RankRows {
  std::vector<int32_t> token_idx;      // [num_tokens] tokens of the batch that go there, ascending
  std::vector<int32_t> expert_counts;  // [num_local_experts] rows per local expert
  std::vector<int32_t> row_token;      // [num_rows] expert-major: position in token_idx of each row
};

/// Where the result of one (token, k) lies: nowhere, if it was left out.
struct SlotRow {
  int32_t rank_idx;
  int32_t row;
};

struct DispatchPlan {
  std::vector<RankRows> ranks;  // [num_ranks]
  std::vector<SlotRow> slots;   // [num_tokens * top_k]
  std::vector<int32_t> cursor;  // [num_ranks] scratch: position in token_idx while rows are placed
};

/// Fills `plan` (whose vectors are reused) for topk_idx [num_tokens, top_k] of logical experts, or kNoExpert. `owners`
/// [num_experts], of experts without rows whatever; `num_local` [num_ranks]: how many experts each rank has. Rows of one expert
/// are in token order.
void plan_dispatch(std::span<const int32_t> topk_idx, int64_t top_k, std::span<const ExpertOwner> owners,
                   std::span<const int32_t> num_local, DispatchPlan& plan);

}  // namespace ferry
