#include "launch/recording_cost.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace ferry {
namespace {

std::vector<double> up_to(int count) {
  std::vector<double> values;
  for (int i = count; i >= 1; --i) values.push_back(i);
  return values;
}

TEST(RecordingCostTest, TheIntervalIsThatOfTheSignTest) {
  // Conover, Practical Nonparametric Statistics, table A3: of 6, 10 and 24 values the smallest, the second and the seventh.
  EXPECT_EQ(summarise_pairs(up_to(6)).low, 1);
  EXPECT_EQ(summarise_pairs(up_to(6)).high, 6);
  EXPECT_EQ(summarise_pairs(up_to(10)).low, 2);
  EXPECT_EQ(summarise_pairs(up_to(10)).high, 9);
  EXPECT_EQ(summarise_pairs(up_to(24)).low, 7);
  EXPECT_EQ(summarise_pairs(up_to(24)).high, 18);
  EXPECT_EQ(summarise_pairs(up_to(24)).median, 12.5);
}

TEST(RecordingCostTest, FewPairsHaveTheirRange) {
  const RecordingCost cost = summarise_pairs({0.03, -0.01, 0.02});
  EXPECT_EQ(cost.low, -0.01);
  EXPECT_EQ(cost.high, 0.03);
  EXPECT_EQ(cost.pairs, (std::vector<double>{0.03, -0.01, 0.02})) << "as they came";
  EXPECT_EQ(summarise_pairs({0.5}).median, 0.5);
  EXPECT_THROW(summarise_pairs({}), std::invalid_argument);
}

}  // namespace
}  // namespace ferry
