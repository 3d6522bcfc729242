#include "moe/expert_load.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(ExpertLoad, CountsPerLayerExpertAndRank) {
  ExpertLoad load(2, 5, 2);
  const std::vector<int32_t> first = {0, 3, 0, 4}, second = {1, 2};
  load.record(0, first);
  load.record(0, second);
  load.add_to_rank(0, 0, 4);
  load.add_to_rank(0, 1, 2);
  EXPECT_EQ(std::vector<int64_t>(load.layer(0).begin(), load.layer(0).end()), (std::vector<int64_t>{2, 1, 1, 1, 1}));
  EXPECT_EQ(load.rank_rows(0), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(load.rank_rows(1), (std::vector<int64_t>{0, 0}));
  load.add_to_rank(1, 3, 7);  // more ranks have come
  EXPECT_EQ(load.rank_rows(1), (std::vector<int64_t>{0, 0, 0, 7}));
}

TEST(ExpertLoad, AllRowsAreTheOnlyRanks) {
  ExpertLoad load(1, 3);
  load.record(0, std::vector<int32_t>{0, 2, 2});
  EXPECT_EQ(load.rank_rows(0), (std::vector<int64_t>{3}));
  EXPECT_EQ(balancedness(load), 1.0);
}

TEST(ExpertLoad, BalancednessIsMeanOverMaxAveragedOverUsedLayers) {
  ExpertLoad load(3, 4, 2);
  EXPECT_EQ(balancedness(load), 1.0);
  load.add_to_rank(0, 0, 4);  // all on one of two ranks: 2 / 4
  EXPECT_DOUBLE_EQ(balancedness(load), 0.5);
  load.add_to_rank(2, 0, 1);  // even; layer 1 has seen nothing
  load.add_to_rank(2, 1, 1);
  EXPECT_DOUBLE_EQ(balancedness(load), 0.75);
}

}  // namespace
}  // namespace ferry
