#include "profiler/archive/step_sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace ferry {
namespace {

/// The length that a share `q` did not exceed.
double exact_quantile(std::vector<double> lengths, double q) {
  std::ranges::sort(lengths);
  const auto rank = static_cast<std::size_t>(std::max(1.0, std::ceil(q * static_cast<double>(lengths.size()))));
  return lengths[rank - 1];
}

TEST(StepSketch, EveryPercentileIsWithinOnePercent) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> length(std::uniform_real_distribution<double>(-12, 2)(random),
                                               std::uniform_real_distribution<double>(0.01, 2)(random));
    StepSketch sketch;
    std::vector<double> lengths;
    const int num_steps = std::uniform_int_distribution<int>(1, 3000)(random);
    for (int i = 0; i < num_steps; ++i) {
      lengths.push_back(std::clamp(length(random), 1e-6, 800.0));
      sketch.add(lengths.back());
    }
    for (const double q : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const double exact = exact_quantile(lengths, q);
      EXPECT_NEAR(sketch.quantile(q), exact, 0.0101 * exact) << "seed " << seed << " q " << q;
    }
    EXPECT_EQ(sketch.longest(), *std::ranges::max_element(lengths));
    EXPECT_EQ(sketch.num_steps(), num_steps);
  }
}

TEST(StepSketch, TwoAreAddedAndTakenApartAgain) {
  std::mt19937 random(1);
  std::exponential_distribution<double> length(1000);
  StepSketch one, two, all;
  for (int i = 0; i < 1000; ++i) {
    const double a = length(random), b = 3 * length(random);
    one.add(a);
    two.add(b);
    all.add(a);
    all.add(b);
  }
  StepSketch sum = one;
  sum.add(two);
  for (const double q : {0.1, 0.5, 0.99}) EXPECT_EQ(sum.quantile(q), all.quantile(q));
  sum.subtract(two);
  EXPECT_TRUE(std::ranges::equal(sum.counts(), one.counts()));
}

TEST(StepSketch, WhatIsOutsideOfItsRangeCountsAtItsEnds) {
  StepSketch sketch;
  EXPECT_EQ(sketch.quantile(0.5), 0);
  for (const double length : {0.0, -1.0, std::nan(""), 1e-9, 1e300, HUGE_VAL}) sketch.add(length);
  EXPECT_EQ(sketch.num_steps(), 6);
  EXPECT_EQ(sketch.counts().front(), StepSketch::Count(0, 4));
  EXPECT_EQ(sketch.counts().back(), StepSketch::Count(StepSketch::kMaxClass, 2));
}

}  // namespace
}  // namespace ferry
