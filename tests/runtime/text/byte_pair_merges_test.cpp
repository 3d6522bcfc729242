#include "runtime/text/byte_pair_merges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ferry {
namespace {

struct Rule {
  TokenId left;
  TokenId right;
  TokenId merged;
};

BytePairMerges make_merges(const std::vector<Rule>& rules) {
  BytePairMerges merges(rules.size());
  for (const Rule& rule : rules) merges.add(rule.left, rule.right, rule.merged);
  return merges;
}

/// The definition, word for word: the best pair of all, the leftmost of its kind, until there is none.
std::vector<TokenId> merge_by_definition(const std::vector<Rule>& rules, std::vector<TokenId> ids) {
  std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> rank_and_merged;
  for (size_t i = 0; i < rules.size(); ++i) rank_and_merged[{rules[i].left, rules[i].right}] = {i, rules[i].merged};
  while (true) {
    size_t best_rank = rules.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = rank_and_merged.find({ids[i], ids[i + 1]});
      if (it == rank_and_merged.end() || it->second.first >= best_rank) continue;
      best_rank = it->second.first;
      best_at = i;
    }
    if (best_rank == rules.size()) return ids;
    ids[best_at] = rules[best_rank].merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

TEST(BytePairMerges, LowestRankFirstThenLeftmost) {
  const auto merges = make_merges({{2, 3, 10}, {1, 2, 11}, {10, 10, 12}, {1, 1, 13}});
  std::vector<TokenId> ids = {7, 1, 2, 3, 2, 3};
  merges.apply(ids, 1);
  EXPECT_EQ(ids, (std::vector<TokenId>{7, 1, 12}));
  ids = {1, 1, 1};
  merges.apply(ids, 0);
  EXPECT_EQ(ids, (std::vector<TokenId>{13, 1}));
}

TEST(BytePairMerges, LeavesShortPiecesAndTokensBeforeThemAlone) {
  const auto merges = make_merges({{1, 2, 3}});
  std::vector<TokenId> ids = {1, 2};
  merges.apply(ids, 2);
  EXPECT_EQ(ids, (std::vector<TokenId>{1, 2}));
  merges.apply(ids, 1);
  EXPECT_EQ(ids, (std::vector<TokenId>{1, 2}));
  merges.apply(ids, 0);
  EXPECT_EQ(ids, (std::vector<TokenId>{3}));
}

TEST(BytePairMerges, ARepeatedPairGetsTheLaterRank) {
  const auto merges = make_merges({{1, 2, 10}, {2, 3, 11}, {1, 2, 10}});
  std::vector<TokenId> ids = {1, 2, 3};
  merges.apply(ids, 0);
  EXPECT_EQ(ids, (std::vector<TokenId>{1, 11}));
}

TEST(BytePairMerges, AgreesWithTheDefinitionAtEveryLength) {
  std::mt19937 rng(11);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<Rule> rules;
    const TokenId num_base = 3 + trial % 3;
    std::map<std::pair<TokenId, TokenId>, bool> seen;
    for (TokenId next = num_base; next < num_base + 57; ++next) {
      const auto left = static_cast<TokenId>(rng() % static_cast<uint32_t>(next));
      const auto right = static_cast<TokenId>(rng() % static_cast<uint32_t>(next));
      if (!seen.emplace(std::pair(left, right), true).second) continue;
      rules.push_back({left, right, next});
    }
    const auto merges = make_merges(rules);
    for (const size_t length : {2U, 5U, 39U, 40U, 41U, 42U, 97U, 311U}) {
      std::vector<TokenId> ids(length);
      for (TokenId& id : ids) id = static_cast<TokenId>(rng() % static_cast<uint32_t>(num_base));
      const std::vector<TokenId> expected = merge_by_definition(rules, ids);
      merges.apply(ids, 0);
      ASSERT_EQ(ids, expected) << "trial " << trial << " length " << length;
    }
  }
}

}  // namespace
}  // namespace ferry
