#include "launch/verify/gain.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

Gain made(double share, double low, double high, double noise_share = 0) {
  return {.share = share, .has_interval = true, .low = low, .high = high, .noise_share = noise_share};
}

TEST(GainTest, TimesThatGetShorterAndRatesThatGrowAreGains) {
  EXPECT_DOUBLE_EQ(gain_share(10, 8, false), 0.2);
  EXPECT_DOUBLE_EQ(gain_share(10, 12, false), -0.2);
  EXPECT_DOUBLE_EQ(gain_share(10, 12, true), 0.2);
  EXPECT_DOUBLE_EQ(gain_share(0, 12, true), 0) << "of nothing";
  const Figure before{.name = "t", .more_is_better = false, .samples = {9, 10, 10, 10, 10, 11}},
      after{.name = "t", .more_is_better = false, .samples = {7, 8, 8, 8, 8, 9}};
  const Gain gain = measure_gain(before, after);
  EXPECT_DOUBLE_EQ(gain.share, 0.2);
  EXPECT_LT(gain.low, 0.2);
  EXPECT_GT(gain.high, 0.2);
  EXPECT_GT(gain.low, 0);
}

TEST(GainTest, WhatItsIntervalContradictsIsNotCertain) {
  EXPECT_TRUE(made(0.2, 0.1, 0.3).is_certain());
  EXPECT_FALSE(made(0.2, 0.1, 0.3).is_contradicted());
  for (const Gain& gain : {made(-0.2, 0.1, 0.3), made(0.2, -0.3, -0.1)}) {
    EXPECT_TRUE(gain.is_contradicted());
    EXPECT_FALSE(gain.is_certain());
  }
}

TEST(GainTest, WhatIsCertainIsHeldAgainstThePrediction) {
  EXPECT_EQ(judge_gain(0.2, made(0.2, 0.1, 0.3)), Verdict::kCame);
  EXPECT_EQ(judge_gain(0.2, made(0.1, 0.05, 0.15)), Verdict::kCameInPart);
  EXPECT_EQ(judge_gain(0.2, made(0.02, 0.01, 0.03)), Verdict::kDidNotCome);
  EXPECT_EQ(judge_gain(0.2, made(-0.2, -0.3, -0.1)), Verdict::kDidNotCome);
}

TEST(GainTest, WhatIsNotCertainDidNotComeOnlyIfItWouldHaveBeenSeen) {
  EXPECT_EQ(judge_gain(0.2, made(0.01, -0.02, 0.04)), Verdict::kDidNotCome);
  EXPECT_EQ(judge_gain(0.2, made(0.01, -0.02, 0.06)), Verdict::kCannotBeTold) << "a part of it may be there";
  EXPECT_EQ(judge_gain(0.2, made(0.01, -0.02, 0.04, 0.2)), Verdict::kCannotBeTold) << "noise is as large";
  EXPECT_EQ(judge_gain(0.2, made(0.19, 0.1, 0.3, 0.2)), Verdict::kCannotBeTold) << "noise alone does as much";
  Gain few = made(0.2, 0, 0);
  few.has_interval = false;
  EXPECT_EQ(judge_gain(0.2, few), Verdict::kCannotBeTold);
}

}  // namespace
}  // namespace ferry
