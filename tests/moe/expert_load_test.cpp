#include "moe/expert_load.h"

#include <gtest/gtest.h>

#include "tests/moe/moe_cases.h"

namespace ferry {
namespace {

TEST(ExpertLoad, CountsPerLayerExpertAndRank) {
  const ExpertMap map = ExpertMap::contiguous(5, worker_ranks(2));  // experts 0 1 2 | 3 4
  ExpertLoad load(2, 5);
  const std::vector<int32_t> first = {0, 3, 0, 4}, second = {1, 2};
  load.record(0, first);
  load.record(0, second);
  EXPECT_EQ(std::vector<int64_t>(load.layer(0).begin(), load.layer(0).end()), (std::vector<int64_t>{2, 1, 1, 1, 1}));
  EXPECT_EQ(tokens_per_rank(load, 0, map), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(tokens_per_rank(load, 1, map), (std::vector<int64_t>{0, 0}));
}

TEST(ExpertLoad, BalancednessIsMeanOverMaxAveragedOverUsedLayers) {
  const ExpertMap map = ExpertMap::contiguous(4, worker_ranks(2));
  ExpertLoad load(3, 4);
  EXPECT_EQ(balancedness(load, map), 1.0);
  load.record(0, std::vector<int32_t>{0, 1, 0, 1});  // all on one of two ranks: 2 / 4
  EXPECT_DOUBLE_EQ(balancedness(load, map), 0.5);
  load.record(2, std::vector<int32_t>{0, 2});  // even; layer 1 has seen nothing
  EXPECT_DOUBLE_EQ(balancedness(load, map), 0.75);
}

}  // namespace
}  // namespace ferry
