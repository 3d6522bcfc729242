#include "launch/warm_up.h"

#include <gtest/gtest.h>

#include <vector>

namespace ferry {
namespace {

/// What the limits make of runs with these rates, each of so many seconds; the last one goes on for ever.
WarmUp warm_up_of(const std::vector<double>& rates, double seconds, const WarmUpLimits& limits = {}) {
  std::size_t next = 0;
  return warm_up(limits, [&] { return WarmUpRun{.rate = rates[std::min(next++, rates.size() - 1)], .seconds = seconds}; });
}

TEST(WarmUp, EndsWithTwoRunsInARowThatAgree) {
  const WarmUp result = warm_up_of({50, 80, 100, 97.5, 60}, 0.1);
  EXPECT_EQ(result.num_runs, 4);
  EXPECT_TRUE(result.is_steady);
  EXPECT_DOUBLE_EQ(result.seconds, 0.4);
}

TEST(WarmUp, TheToleranceIsOfTheFasterRun) {
  EXPECT_EQ(warm_up_of({100, 97}, 0).num_runs, 2);
  EXPECT_EQ(warm_up_of({97, 100}, 0).num_runs, 2);
  EXPECT_EQ(warm_up_of({100, 96.9}, 0).num_runs, 3) << "the first two are too far apart, the third is as the second";
}

TEST(WarmUp, GivesUpAfterItsRuns) {
  std::vector<double> rates;
  for (int i = 0; i < 20; ++i) rates.push_back(i % 2 == 0 ? 100 : 50);
  const WarmUp result = warm_up_of(rates, 0.1);
  EXPECT_EQ(result.num_runs, 10);
  EXPECT_FALSE(result.is_steady);
}

TEST(WarmUp, GivesUpAfterItsSecondsButRunsOnce) {
  EXPECT_EQ(warm_up_of({1, 2, 4, 8}, 2.0).num_runs, 3);
  const WarmUp once = warm_up_of({1, 2}, 60);
  EXPECT_EQ(once.num_runs, 1);
  EXPECT_FALSE(once.is_steady) << "one run says nothing of a second";
}

}  // namespace
}  // namespace ferry
