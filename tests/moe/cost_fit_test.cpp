#include "moe/remote/cost_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

// What becomes of costs that are known.

namespace ferry {
namespace {

constexpr ExpertCost kFirstCost{.fixed = 16, .per_row = 1};

/// How workers compute: microseconds, and what disturbs them.
struct Truth {
  double overhead = 0, fixed = 0, per_row = 0;
  double noise = 0;     // of the logarithm, standard deviation
  double outliers = 0;  // share of replies that take 20 times as long
  double unit_us = 1;   // of all of these
};

/// A stream of replies to steps of `tokens`, each drawn from `sizes`, with 8 of 64 experts for each token on 2 workers.
void play(ExpertCostFit& fit, const Truth& truth, const std::vector<int64_t>& sizes, int num_steps, uint32_t seed = 1,
          double speed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  for (int step = 0; step < num_steps; ++step) {
    const int64_t tokens = sizes[random() % sizes.size()];
    std::vector<int64_t> rows(32, 0);
    int64_t touched = 0, all = 0;
    for (int64_t slot = 0; slot < 8 * tokens; ++slot) {
      const std::size_t expert = random() % 64;
      if (expert < rows.size()) ++rows[expert];
    }
    for (const int64_t count : rows) {
      touched += count > 0 ? 1 : 0;
      all += count;
    }
    double time = truth.overhead + truth.fixed * static_cast<double>(touched) + truth.per_row * static_cast<double>(all);
    time *= std::exp(truth.noise * normal(random));
    if (uniform(random) < truth.outliers) time *= 20;
    fit.learn(touched, all, std::chrono::nanoseconds(std::llround(time * truth.unit_us * 1000 / speed)), speed);
  }
}

double fitted(const Truth& truth, const std::vector<int64_t>& sizes, int num_steps = 6000, uint32_t seed = 1) {
  ExpertCostFit fit(kFirstCost);
  play(fit, truth, sizes, num_steps, seed);
  EXPECT_EQ(fit.fit().per_row, 1);
  return fit.fit().fixed;
}

const std::vector<int64_t> kDecodeAndPrompts{1, 1, 1, 4, 4, 16, 128, 512};

TEST(ExpertCostFit, FindsWhatExpertsCostWhateverTheUnit) {
  for (const double ratio : {2.0, 5.0, 40.0, 150.0}) {
    for (const double unit_us : {0.1, 100.0}) {
      const Truth truth{.fixed = ratio, .per_row = 1, .unit_us = unit_us};
      EXPECT_NEAR(fitted(truth, kDecodeAndPrompts) / ratio, 1, 0.15) << ratio << " x " << unit_us << " us";
    }
  }
}

TEST(ExpertCostFit, AnOverheadIsNoCostOfExperts) {
  EXPECT_NEAR(fitted({.overhead = 50, .fixed = 5, .per_row = 1}, kDecodeAndPrompts, 20000) / 5, 1, 0.3);
  EXPECT_NEAR(fitted({.overhead = 100, .fixed = 30, .per_row = 1}, kDecodeAndPrompts, 20000) / 30, 1, 0.3);
}

TEST(ExpertCostFit, NoiseAndStallsAreNoCosts) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const Truth noisy{.fixed = 40, .per_row = 1, .noise = 0.3, .outliers = 0.1};
    EXPECT_NEAR(fitted(noisy, kDecodeAndPrompts, 6000, seed) / 40, 1, 0.35) << seed;
    const Truth small{.fixed = 4, .per_row = 1, .noise = 0.3, .outliers = 0.1};
    EXPECT_NEAR(fitted(small, kDecodeAndPrompts, 6000, seed) / 4, 1, 0.35) << seed;
  }
}

TEST(ExpertCostFit, RepliesThatAreAlikeTellNothing) {
  ExpertCostFit none(kFirstCost);
  EXPECT_EQ(none.fit(), kFirstCost);
  EXPECT_EQ(fitted({.fixed = 100, .per_row = 1}, {1, 512}, 100), 16) << "too few";
  for (const double ratio : {1.0, 200.0}) {
    ExpertCostFit one(kFirstCost);  // class
    for (int i = 0; i < 1000; ++i) one.learn(8, 8, std::chrono::nanoseconds(std::llround(8000 * (ratio + 1))), 1);
    EXPECT_EQ(one.fit(), kFirstCost);
  }
  // One token and no other: experts and rows are the same number, so only their sum can be seen.
  for (const double ratio : {1.0, 200.0}) EXPECT_EQ(fitted({.fixed = ratio, .per_row = 1}, {1}), 16) << ratio;
  EXPECT_EQ(fitted({.overhead = 300, .fixed = 1, .per_row = 1}, {1, 4}), 16) << "an overhead shows, but no cost of rows";
}

TEST(ExpertCostFit, IsKeptInBounds) {
  EXPECT_EQ(fitted({.fixed = 0.001, .per_row = 1}, kDecodeAndPrompts), ExpertCostFit::kLeastRatio);
  EXPECT_EQ(fitted({.fixed = 1, .per_row = 0}, kDecodeAndPrompts), ExpertCostFit::kMostRatio);
}

TEST(ExpertCostFit, APromptNowAndThenIsNotForgotten) {
  ExpertCostFit fit(kFirstCost);
  const Truth truth{.fixed = 60, .per_row = 1, .noise = 0.1};
  play(fit, truth, kDecodeAndPrompts, 3000);
  const double before = fit.fit().fixed;
  EXPECT_NEAR(before / 60, 1, 0.2);
  play(fit, truth, {1}, 100000);
  EXPECT_NEAR(fit.fit().fixed / before, 1, 0.2);
}

TEST(ExpertCostFit, FollowsAMachineThatChanges) {
  ExpertCostFit fit(kFirstCost);
  play(fit, {.fixed = 60, .per_row = 1, .noise = 0.1}, kDecodeAndPrompts, 20000);
  play(fit, {.fixed = 6, .per_row = 1, .noise = 0.1}, kDecodeAndPrompts, 20000);
  EXPECT_NEAR(fit.fit().fixed / 6, 1, 0.3);
}

TEST(ExpertCostFit, WorkersOfDifferentSpeedTellTheSame) {
  ExpertCostFit fit(kFirstCost);
  for (uint32_t round = 0; round < 200; ++round) {  // the slow one sees prompts more often
    play(fit, {.fixed = 30, .per_row = 1, .noise = 0.1}, {1, 1, 1, 4, 64}, 50, 2 * round, 1);
    play(fit, {.fixed = 30, .per_row = 1, .noise = 0.1}, {1, 64, 512}, 50, 2 * round + 1, 0.25);
  }
  EXPECT_NEAR(fit.fit().fixed / 30, 1, 0.25);
}

TEST(ExpertCostFit, SmallChangesAreNone) {
  ExpertCostFit fit(kFirstCost);
  play(fit, {.fixed = 16.5, .per_row = 1}, kDecodeAndPrompts, 20000);
  EXPECT_EQ(fit.fit(), kFirstCost);
}

TEST(ExpertCostFit, WhatIsNoReplyTeachesNothing) {
  ExpertCostFit fit(kFirstCost);
  for (int i = 0; i < 1000; ++i) {
    fit.learn(0, 0, std::chrono::milliseconds(1), 1);
    fit.learn(4, 3, std::chrono::milliseconds(1), 1);
    fit.learn(1, 400, std::chrono::nanoseconds(0), 1);
    fit.learn(1, 1, std::chrono::nanoseconds(-5), 1);
  }
  EXPECT_EQ(fit.fit(), kFirstCost);
  play(fit, {.fixed = 40, .per_row = 1}, kDecodeAndPrompts, 6000);
  EXPECT_EQ(fit.fit().fixed, fitted({.fixed = 40, .per_row = 1}, kDecodeAndPrompts));
}

}  // namespace
}  // namespace ferry
