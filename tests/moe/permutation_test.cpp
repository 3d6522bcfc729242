#include "moe/permutation.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/moe/moe_cases.h"

namespace ferry {
namespace {

TEST(Permutation, WorkedExampleOfTheHeader) {
  const ExpertMap map = ExpertMap::contiguous(4, worker_ranks(2));
  const std::vector<int32_t> topk_idx = {2, 0, 0, 1, 3, 2};
  DispatchPlan plan;
  plan_by_map(topk_idx, 2, map, plan);
  EXPECT_EQ(plan.ranks[0].token_idx, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(plan.ranks[0].row_token, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(plan.ranks[0].expert_counts, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(plan.ranks[1].token_idx, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(plan.ranks[1].row_token, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(plan.ranks[1].expert_counts, (std::vector<int32_t>{2, 1}));
  const std::vector<std::pair<int32_t, int32_t>> slots = {{1, 0}, {0, 0}, {0, 1}, {0, 2}, {1, 2}, {1, 1}};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(plan.slots[i].rank_idx, slots[i].first) << i;
    EXPECT_EQ(plan.slots[i].row, slots[i].second) << i;
  }
}

/// Every (token, k) has exactly one row, at the right expert, of the right token; nothing else is sent.
void expect_consistent(const std::vector<int32_t>& topk_idx, int64_t top_k, const ExpertMap& map, const DispatchPlan& plan) {
  std::set<std::pair<int32_t, int32_t>> rows;
  for (std::size_t i = 0; i < topk_idx.size(); ++i) {
    const SlotRow slot = plan.slots[i];
    const RankRows& rank = plan.ranks[static_cast<std::size_t>(slot.rank_idx)];
    ASSERT_TRUE(rows.emplace(slot.rank_idx, slot.row).second) << "row used twice";
    const auto position = static_cast<std::size_t>(rank.row_token.at(static_cast<std::size_t>(slot.row)));
    EXPECT_EQ(rank.token_idx.at(position), static_cast<int32_t>(static_cast<int64_t>(i) / top_k));
    int32_t end = 0, expert = -1;
    while (end <= slot.row) end += rank.expert_counts.at(static_cast<std::size_t>(++expert));
    EXPECT_EQ(map.logical_of(map.experts_of(slot.rank_idx)[static_cast<std::size_t>(expert)]).value, topk_idx[i]);
  }
  std::size_t sent = 0;
  for (const RankRows& rank : plan.ranks) {
    sent += rank.row_token.size();
    EXPECT_TRUE(std::is_sorted(rank.token_idx.begin(), rank.token_idx.end()));
    EXPECT_EQ(std::set<int32_t>(rank.token_idx.begin(), rank.token_idx.end()).size(), rank.token_idx.size())
        << "a token travels once";
  }
  EXPECT_EQ(sent, topk_idx.size());
}

TEST(Permutation, MatrixOfSizes) {
  DispatchPlan plan;  // reused, as a dispatcher does
  for (const int64_t num_tokens : {0, 1, 33}) {
    for (const int64_t num_experts : {8, 64}) {
      for (const int64_t top_k : {1, 4, 8}) {
        for (const int num_ranks : {1, 2, 4, 7}) {
          for (const Skew skew : {Skew::kUniform, Skew::kAllToFirst}) {
            const ExpertMap map = ExpertMap::contiguous(num_experts, worker_ranks(num_ranks));
            const std::vector<int32_t> topk_idx = random_topk(num_tokens, num_experts, top_k, skew, 5);
            plan_by_map(topk_idx, top_k, map, plan);
            expect_consistent(topk_idx, top_k, map, plan);
          }
        }
      }
    }
  }
}

TEST(Permutation, LeavesOutWhatHasNoExpert) {
  const ExpertMap map = ExpertMap::contiguous(4, worker_ranks(2));
  const std::vector<int32_t> topk_idx = {kNoExpert, 0, kNoExpert, kNoExpert, 3, 2};
  DispatchPlan plan;
  plan_by_map(topk_idx, 2, map, plan);
  EXPECT_EQ(plan.ranks[0].token_idx, (std::vector<int32_t>{0}));
  EXPECT_EQ(plan.ranks[1].token_idx, (std::vector<int32_t>{2}));
  EXPECT_EQ(plan.ranks[1].expert_counts, (std::vector<int32_t>{1, 1}));
  EXPECT_EQ(plan.slots[0].rank_idx, -1);
  EXPECT_EQ(plan.slots[4].rank_idx, 1);
  EXPECT_EQ(plan.slots[4].row, 1);
}

TEST(PermutationDeathTest, RefusesAnUnknownExpert) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const ExpertMap map = ExpertMap::contiguous(4, worker_ranks(2));
  const std::vector<int32_t> topk_idx = {0, 4};
  DispatchPlan plan;
  EXPECT_DEATH(plan_by_map(topk_idx, 2, map, plan), "expert 4 of token 0");
}

}  // namespace
}  // namespace ferry
