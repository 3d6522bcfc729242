#include "runtime/schedule/draft_policy.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace ferry {
namespace {

/// A machine on which a step with k drafts takes 1 + k * row_seconds, and a sequence whose drafts are right with `probability`
/// each, after `num_bad_steps` in which they are right every other time.
struct Simulation {
  double row_seconds;
  double probability;
  int64_t max_drafts = 4;
  double noise = 0;       // of times, relative
  double start_cost = 0;  // of drafting after not drafting, in steps
  int num_bad_steps = 0;
  unsigned seed = 7;

  double tokens_per_second(int num_steps) {
    DraftPolicy policy(max_drafts);
    DraftRecord common, record(&common);
    std::mt19937 random(seed);
    std::bernoulli_distribution is_right(probability), is_right_at_first(0.5);
    std::uniform_real_distribution<double> jitter(1 - noise, 1 + noise);
    double seconds = 0, tokens = 0;
    int64_t last = 0;
    for (int step = 0; step < num_steps; ++step) {
      DraftPolicy::ExpectedTokens expected{};
      for (int64_t k = 0; k <= max_drafts; ++k) {
        expected[static_cast<std::size_t>(k)] = record.expected_tokens(record.worthwhile(k, policy.break_even(1, k)));
      }
      const int64_t chosen = policy.choose(1, expected);
      const int64_t tried = record.worthwhile(chosen, policy.break_even(1, chosen));
      int64_t right = 0;
      while (right < tried && (step < num_bad_steps ? is_right_at_first : is_right)(random)) ++right;
      record.add(tried, right);
      common.add(tried, right);
      const double start = chosen > 0 && last == 0 ? start_cost : 0;
      const double took = (1 + static_cast<double>(tried) * row_seconds) * jitter(random) + start;
      last = chosen;
      policy.observe(1, chosen, took);
      seconds += took;
      tokens += static_cast<double>(1 + right);
    }
    return tokens / seconds;
  }
  /// With always `k` drafts, in the long run.
  double fixed(int64_t k) const {
    double tokens = 1, reached = 1;
    for (int64_t i = 0; i < k; ++i) tokens += reached *= probability;
    return tokens / (1 + static_cast<double>(k) * row_seconds);
  }
  double best_fixed() const {
    double best = 0;
    for (int64_t k = 0; k <= max_drafts; ++k) best = std::max(best, fixed(k));
    return best;
  }
};

TEST(DraftPolicy, ComesCloseToTheBestFixedNumber) {
  for (const double noise : {0.0, 0.15}) {
    for (const double row_seconds : {0.05, 0.2, 0.5, 0.8, 1.2}) {
      for (const double probability : {0.02, 0.3, 0.6, 0.9}) {
        Simulation simulation{row_seconds, probability, 4, noise};
        EXPECT_GE(simulation.tokens_per_second(3000), 0.93 * simulation.best_fixed())
            << row_seconds << " a row, right with " << probability << ", noise " << noise;
      }
    }
  }
}

TEST(DraftPolicy, ForgetsABadBeginning) {
  double tokens_per_second = 0;
  constexpr int kNumSeeds = 20;
  for (unsigned seed = 0; seed < kNumSeeds; ++seed) {
    Simulation simulation{.row_seconds = 0.63, .probability = 0.93, .noise = 0.1, .num_bad_steps = 12, .seed = seed};
    tokens_per_second += simulation.tokens_per_second(200) / kNumSeeds;
  }
  EXPECT_GE(tokens_per_second, 0.92 * (Simulation{0.63, 0.93}.best_fixed()));
}

TEST(DraftPolicy, CostsLittleWhereDraftsDoNotPay) {
  for (const double probability : {0.0, 0.1, 0.4}) {
    Simulation simulation{0.9, probability};
    EXPECT_GE(simulation.tokens_per_second(3000), 0.98) << probability;
  }
}

TEST(DraftPolicy, TriesRarelyWhatIsDearToBegin) {
  for (const double start_cost : {0.5, 3.0}) {
    Simulation simulation{.row_seconds = 1, .probability = 0.9, .noise = 0.05, .start_cost = start_cost};
    EXPECT_GE(simulation.tokens_per_second(6000), 0.98) << start_cost;
  }
}

TEST(DraftPolicy, WantsMoreThanNoise) {
  int num_drafted = 0;
  DraftPolicy policy(1);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> jitter(0.98, 1.02);
  for (int step = 0; step < 2000; ++step) {
    const int64_t chosen = policy.choose(64, {1, 1.9});
    num_drafted += static_cast<int>(chosen);
    policy.observe(64, chosen, (chosen > 0 ? 1.9 : 1.0) * jitter(random));
  }
  EXPECT_LT(num_drafted, 200) << "both are equally good";
}

TEST(DraftPolicy, GivesUpOnlyWhatItHasTried) {
  DraftPolicy policy(2);
  const DraftPolicy::ExpectedTokens hopeless{1, 1, 1}, sure{1, 2, 3};
  EXPECT_FALSE(policy.has_given_up(64, policy.choose(64, hopeless))) << "nothing is known yet";
  for (const auto& [num_sequences, tokens] : {std::pair(64, hopeless), std::pair(1, sure)}) {
    int num_given_up = 0;
    for (int step = 0; step < 300; ++step) {
      const int64_t chosen = policy.choose(num_sequences, tokens);
      num_given_up += policy.has_given_up(num_sequences, chosen) ? 1 : 0;
      policy.observe(num_sequences, chosen, 1 + 0.5 * static_cast<double>(chosen));
    }
    EXPECT_GE(num_given_up, num_sequences == 64 ? 250 : 0);
    EXPECT_LE(num_given_up, num_sequences == 64 ? 300 : 0) << "a trial of no drafts gives nothing up";
  }
}

TEST(DraftPolicy, KnowsBatchesOfDifferentSizesApart) {
  DraftPolicy policy(2);
  const DraftPolicy::ExpectedTokens tokens{1, 1.8, 2.4};
  const auto settle = [&](int64_t num_sequences, double row_seconds) {
    int64_t chosen = 0;
    for (int i = 0; i < 60; ++i) {
      chosen = policy.choose(num_sequences, tokens);
      policy.observe(num_sequences, chosen, 1 + static_cast<double>(chosen) * row_seconds);
    }
    return chosen;
  };
  EXPECT_EQ(settle(1, 0.1), 2);
  EXPECT_EQ(settle(64, 1.0), 0);
  EXPECT_EQ(settle(1, 0.1), 2);
}

TEST(DraftRecord, ExpectsWhatOthersHadUntilItSeesOtherwise) {
  DraftRecord common, record(&common);
  for (int i = 0; i < 400; ++i) common.add(2, 0);
  EXPECT_EQ(record.worthwhile(2, 0.3), 0);
  for (int i = 0; i < 12; ++i) record.add(2, 2);
  EXPECT_EQ(record.worthwhile(2, 0.3), 2) << "and follows its own sequence quickly";
  EXPECT_EQ(common.worthwhile(2, 0.3), 0);
}

TEST(DraftRecord, ForgetsWhatItHasNotTriedForLong) {
  DraftRecord common, record(&common);
  for (int i = 0; i < 400; ++i) common.add(2, 2);
  for (int i = 0; i < 40; ++i) record.add(2, 0);
  EXPECT_EQ(record.worthwhile(2, 0.7), 0);
  for (int i = 0; i < 100; ++i) record.add(0, 0);
  EXPECT_EQ(record.worthwhile(2, 0.7), 2);
}

TEST(DraftRecord, FollowsWhatWasRight) {
  DraftRecord common, record(&common);
  const auto add = [&](int64_t num_right) {
    for (int i = 0; i < 40; ++i) {
      record.add(3, num_right);
      common.add(3, num_right);
    }
  };
  EXPECT_EQ(record.worthwhile(3, 0.3), 3) << "nothing is known yet";
  add(1);
  EXPECT_EQ(record.worthwhile(3, 0.3), 1);
  EXPECT_NEAR(record.expected_tokens(3), 2, 0.1);
  add(0);
  EXPECT_EQ(record.worthwhile(3, 0.3), 0);
  EXPECT_EQ(record.worthwhile(3, 0), 3);
  EXPECT_NEAR(record.expected_tokens(0), 1, 0);
}

}  // namespace
}  // namespace ferry
