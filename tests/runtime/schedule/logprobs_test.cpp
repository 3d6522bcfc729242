#include "runtime/schedule/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace ferry {
namespace {

constexpr float kInfiniteLogit = std::numeric_limits<float>::infinity(), kNoLogit = std::numeric_limits<float>::quiet_NaN();

TokenLogprobs logprobs_of(const std::vector<float>& row, TokenId id, int32_t num_top) {
  std::vector<SamplerCandidate> scratch(row.size());
  return token_logprobs(row, id, num_top, scratch);
}

/// log_softmax in long double, then everything sorted.
TokenLogprobs naive_logprobs(const std::vector<float>& row, TokenId id) {
  const float max = *std::ranges::max_element(row);
  long double total = 0;
  for (const float x : row) total += std::exp(static_cast<long double>(x) - max);
  std::vector<TokenId> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](TokenId a, TokenId b) { return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)]; });
  TokenLogprobs told;
  for (const TokenId each : order) {
    const auto logprob =
        static_cast<float>(static_cast<long double>(row[static_cast<std::size_t>(each)]) - max - std::log(total));
    told.top.push_back({.id = each, .logprob = logprob, .rank = static_cast<int32_t>(told.top.size()) + 1});
    if (each == id) told.chosen = told.top.back();
  }
  return told;
}

/// Up to the rounding of the result to float, which may go the other way.
void expect_same(const TokenLogprob& told, const TokenLogprob& expected) {
  EXPECT_EQ(told.id, expected.id);
  EXPECT_EQ(told.rank, expected.rank);
  EXPECT_NEAR(told.logprob, expected.logprob, std::abs(expected.logprob) * 1.2e-7F + 1e-30F);
}

TEST(Logprobs, AgreeWithTheBook) {
  std::mt19937 random(3);
  for (const int32_t vocab : {1, 2, 7, 8, 31, 100, 3001}) {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> row(static_cast<std::size_t>(vocab));
      std::normal_distribution<float> normal(0.0F, 6.0F);
      for (float& x : row) x = std::round(normal(random) * 4.0F) / 4.0F;  // many ties
      const auto id = static_cast<TokenId>(random() % static_cast<unsigned>(vocab));
      const TokenLogprobs expected = naive_logprobs(row, id);
      for (const int32_t num_top : {0, 1, 5, 20, vocab, SamplingParams::kWholeVocabulary}) {
        const TokenLogprobs told = logprobs_of(row, id, num_top);
        expect_same(told.chosen, expected.chosen);
        ASSERT_EQ(std::ssize(told.top), num_top < 0 ? vocab : std::min(num_top, vocab));
        for (std::size_t k = 0; k < told.top.size(); ++k) expect_same(told.top[k], expected.top[k]);
      }
    }
  }
}

// torch.log_softmax(torch.tensor([1., 2., 3., -1.]), -1)
TEST(Logprobs, AreThoseOfTorch) {
  const TokenLogprobs told = logprobs_of({1.0F, 2.0F, 3.0F, -1.0F}, 0, 2);
  EXPECT_NEAR(told.chosen.logprob, -2.4196F, 1e-3);
  EXPECT_NEAR(told.chosen.logprob, 1.0 - std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + std::exp(-1.0)), 1e-6);
  EXPECT_EQ(told.chosen.rank, 3);
  ASSERT_EQ(told.top.size(), 2U);
  EXPECT_EQ(told.top[0].id, 2);
  EXPECT_EQ(told.top[1].id, 1);
}

TEST(Logprobs, TokensWithoutProbability) {
  const std::vector<float> row{kNoLogit, 1.0F, -kInfiniteLogit, 1.0F};
  const TokenLogprobs told = logprobs_of(row, 2, SamplingParams::kWholeVocabulary);
  EXPECT_EQ(told.chosen.logprob, -kInfiniteLogit);
  EXPECT_EQ(told.chosen.rank, 4) << "behind the two that have some, and the one of a lower id";
  ASSERT_EQ(told.top.size(), 2U);
  EXPECT_EQ(told.top[0].id, 1);
  EXPECT_EQ(told.top[1].id, 3);
  EXPECT_NEAR(told.top[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(logprobs_of(row, 0, 0).chosen.rank, 3);
  const TokenLogprobs padding = logprobs_of(row, 7, 1);
  EXPECT_EQ(padding.chosen.id, 7);
  EXPECT_EQ(padding.chosen.logprob, -kInfiniteLogit);
  EXPECT_EQ(padding.chosen.rank, 5);
  const TokenLogprobs nothing = logprobs_of({kNoLogit, -kInfiniteLogit}, 1, 5);
  EXPECT_EQ(nothing.chosen.logprob, -kInfiniteLogit);
  EXPECT_TRUE(nothing.top.empty());
}

TEST(Logprobs, InfiniteLogitsShareTheProbability) {
  const TokenLogprobs told = logprobs_of({kInfiniteLogit, 3.0F, kInfiniteLogit}, 2, 3);
  EXPECT_NEAR(told.chosen.logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(told.chosen.rank, 2);
  ASSERT_EQ(told.top.size(), 3U);
  EXPECT_EQ(told.top[2].logprob, -kInfiniteLogit);
}

}  // namespace
}  // namespace ferry
