#include "profiler/report/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ferry {
namespace {

TEST(StatisticsTest, MeanMedianAndPercentileOfFewValues) {
  EXPECT_DOUBLE_EQ(mean(std::vector<double>{1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(mean({}), 0);
  EXPECT_DOUBLE_EQ(median({9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(median({9, 1, 5, 7}), 6);
  EXPECT_DOUBLE_EQ(median({}), 0);
  EXPECT_DOUBLE_EQ(percentile({5, 1, 4, 2, 3}, 0.5), 3);
  EXPECT_DOUBLE_EQ(percentile({5, 1, 4, 2, 3}, 0.9), 5);
  EXPECT_DOUBLE_EQ(percentile({5, 1, 4, 2, 3}, 0.2), 1);
  EXPECT_DOUBLE_EQ(percentile({7}, 0), 7);
}

TEST(StatisticsTest, GiniIsZeroForEvenAndHighForOne) {
  EXPECT_DOUBLE_EQ(gini({4, 4, 4}), 0);
  EXPECT_DOUBLE_EQ(gini({0, 0, 0, 12}), 0.75);  // (n - 1) / n
  EXPECT_DOUBLE_EQ(gini({0, 0}), 0);
}

TEST(StatisticsTest, WelchOnTwoPairs) {
  // Variances 2 and 2, two values each: 2 degrees of freedom, for which p = 1 - t / sqrt(t^2 + 2).
  const auto test = welch_test(std::vector<double>{0, 2}, std::vector<double>{10, 12});
  ASSERT_TRUE(test.has_value());
  EXPECT_NEAR(test->t, 10 / std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(test->degrees, 2, 1e-12);
  EXPECT_NEAR(test->p, 1 - test->t / std::sqrt(test->t * test->t + 2), 1e-12);
}

TEST(StatisticsTest, WelchWithUnequalVariances) {
  // Means 2 and 6, variances 1 and 4: t = 4 / sqrt(1/3 + 4/3), degrees = (5/3)^2 / ((1/9 + 16/9) / 2).
  const auto test = welch_test(std::vector<double>{1, 2, 3}, std::vector<double>{4, 6, 8});
  ASSERT_TRUE(test.has_value());
  EXPECT_NEAR(test->t, 4 / std::sqrt(5.0 / 3), 1e-12);
  EXPECT_NEAR(test->degrees, 50.0 / 17, 1e-12);
  EXPECT_GT(test->p, 0.05);
  EXPECT_LT(test->p, 0.06);
}

TEST(StatisticsTest, WelchNeedsValuesThatVary) {
  EXPECT_FALSE(welch_test(std::vector<double>{1}, std::vector<double>{2, 3}).has_value());
  EXPECT_FALSE(welch_test(std::vector<double>{1, 1}, std::vector<double>{1, 1}).has_value());
}

}  // namespace
}  // namespace ferry
