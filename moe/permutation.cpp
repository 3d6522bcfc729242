#include "moe/permutation.h"

#include <utility>

#include "runtime/base/check.h"

namespace ferry {
namespace {

PhysicalExpertId choose_copy(const ExpertMap& map, int32_t logical) { return map.copies_of({logical}).front(); }

/// Counts rows per expert and lists each rank's tokens; a token enters a rank's list at the first of its experts there.
void count_rows(std::span<const int32_t> topk_idx, int64_t top_k, const ExpertMap& map, DispatchPlan& plan) {
  const int64_t num_tokens = static_cast<int64_t>(topk_idx.size()) / top_k;
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t logical = topk_idx[static_cast<std::size_t>(t * top_k + k)];
      FERRY_CHECK(logical >= 0 && logical < map.num_logical()) << " expert " << logical << " of token " << t;
      const PhysicalExpertId expert = choose_copy(map, logical);
      RankRows& rank = plan.ranks[static_cast<std::size_t>(map.rank_idx_of(expert))];
      ++rank.expert_counts[static_cast<std::size_t>(map.local_idx_of(expert))];
      if (rank.token_idx.empty() || rank.token_idx.back() != t) rank.token_idx.push_back(static_cast<int32_t>(t));
    }
  }
}

}  // namespace

void plan_dispatch(std::span<const int32_t> topk_idx, int64_t top_k, const ExpertMap& map, DispatchPlan& plan) {
  plan.ranks.resize(map.ranks().size());
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    plan.ranks[r].token_idx.clear();
    plan.ranks[r].expert_counts.assign(map.experts_of(static_cast<int32_t>(r)).size(), 0);
  }
  plan.slots.resize(topk_idx.size());
  count_rows(topk_idx, top_k, map, plan);

  // Turn the counts into exclusive prefix sums: the next free row of every expert.
  for (RankRows& rank : plan.ranks) {
    int32_t rows = 0;
    for (int32_t& count : rank.expert_counts) rows += std::exchange(count, rows);
    rank.row_token.resize(static_cast<std::size_t>(rows));
  }
  const int64_t num_tokens = static_cast<int64_t>(topk_idx.size()) / top_k;
  plan.cursor.assign(plan.ranks.size(), 0);
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < top_k; ++k) {
      const auto slot = static_cast<std::size_t>(t * top_k + k);
      const PhysicalExpertId expert = choose_copy(map, topk_idx[slot]);
      const int32_t rank_idx = map.rank_idx_of(expert);
      RankRows& rank = plan.ranks[static_cast<std::size_t>(rank_idx)];
      int32_t& cursor = plan.cursor[static_cast<std::size_t>(rank_idx)];
      while (rank.token_idx[static_cast<std::size_t>(cursor)] != t) ++cursor;
      const int32_t row = rank.expert_counts[static_cast<std::size_t>(map.local_idx_of(expert))]++;
      rank.row_token[static_cast<std::size_t>(row)] = cursor;
      plan.slots[slot] = {rank_idx, row};
    }
  }
  // The cursors now stand at the ends: differences are the counts again.
  for (RankRows& rank : plan.ranks) {
    int32_t previous_end = 0;
    for (int32_t& end : rank.expert_counts) {
      const int32_t count = end - previous_end;
      previous_end = end;
      end = count;
    }
  }
}

}  // namespace ferry
