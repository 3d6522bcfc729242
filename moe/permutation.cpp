#include "moe/permutation.h"

#include <utility>

#include "runtime/base/check.h"

namespace ferry {
namespace {

/// Counts rows per expert and lists each rank's tokens; a token enters a rank's list at the first of its experts there.
void count_rows(std::span<const int32_t> topk_idx, int64_t top_k, std::span<const ExpertOwner> owners, DispatchPlan& plan) {
  const int64_t num_tokens = static_cast<int64_t>(topk_idx.size()) / top_k;
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t logical = topk_idx[static_cast<std::size_t>(t * top_k + k)];
      if (logical == kNoExpert) continue;
      FERRY_CHECK(logical >= 0 && logical < std::ssize(owners)) << " expert " << logical << " of token " << t;
      const ExpertOwner owner = owners[static_cast<std::size_t>(logical)];
      RankRows& rank = plan.ranks[static_cast<std::size_t>(owner.rank_idx)];
      ++rank.expert_counts[static_cast<std::size_t>(owner.local_idx)];
      if (rank.token_idx.empty() || rank.token_idx.back() != t) rank.token_idx.push_back(static_cast<int32_t>(t));
    }
  }
}

/// Turns counts into exclusive prefix sums, the next free row of every expert, and makes room for the rows.
void begin_rows(DispatchPlan& plan) {
  for (RankRows& rank : plan.ranks) {
    int32_t rows = 0;
    for (int32_t& count : rank.expert_counts) rows += std::exchange(count, rows);
    rank.row_token.resize(static_cast<std::size_t>(rows));
  }
}

/// The next free rows now stand at the ends: differences are the counts again.
void end_rows(DispatchPlan& plan) {
  for (RankRows& rank : plan.ranks) {
    int32_t previous_end = 0;
    for (int32_t& end : rank.expert_counts) {
      const int32_t count = end - previous_end;
      previous_end = end;
      end = count;
    }
  }
}

}  // namespace

void plan_dispatch(std::span<const int32_t> topk_idx, int64_t top_k, std::span<const ExpertOwner> owners,
                   std::span<const int32_t> num_local, DispatchPlan& plan) {
  plan.ranks.resize(num_local.size());
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    plan.ranks[r].token_idx.clear();
    plan.ranks[r].expert_counts.assign(static_cast<std::size_t>(num_local[r]), 0);
  }
  plan.slots.resize(topk_idx.size());
  count_rows(topk_idx, top_k, owners, plan);
  begin_rows(plan);
  plan.cursor.assign(plan.ranks.size(), 0);
  for (std::size_t slot = 0; slot < topk_idx.size(); ++slot) {
    if (topk_idx[slot] == kNoExpert) {
      plan.slots[slot] = {-1, -1};
      continue;
    }
    const auto token = static_cast<int32_t>(static_cast<int64_t>(slot) / top_k);
    const ExpertOwner owner = owners[static_cast<std::size_t>(topk_idx[slot])];
    RankRows& rank = plan.ranks[static_cast<std::size_t>(owner.rank_idx)];
    int32_t& cursor = plan.cursor[static_cast<std::size_t>(owner.rank_idx)];
    while (rank.token_idx[static_cast<std::size_t>(cursor)] != token) ++cursor;
    const int32_t row = rank.expert_counts[static_cast<std::size_t>(owner.local_idx)]++;
    rank.row_token[static_cast<std::size_t>(row)] = cursor;
    plan.slots[slot] = {owner.rank_idx, row};
  }
  end_rows(plan);
}

}  // namespace ferry
