#include "moe/expert_placement.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/moe/moe_cases.h"

namespace ferry {
namespace {

TEST(ExpertPlacement, LayersDifferAndShareRanksAndEpoch) {
  const std::vector<LayerPlacement> layers = {{{{0}, {1}}, {{2}, {0}}}, {{{2}}, {{1}, {0}, {2}}}};
  const ExpertPlacement placement(3, worker_ranks(2), 3, layers);
  EXPECT_EQ(placement.epoch(), 3U);
  EXPECT_EQ(placement.num_layers(), 2);
  EXPECT_EQ(placement.num_experts(), 3);
  EXPECT_EQ(placement.ranks().size(), 2U);
  EXPECT_EQ(placement.layer(1).num_physical(), 4);
  EXPECT_EQ(std::vector<uint64_t>(placement.holders(0).begin(), placement.holders(0).end()),
            (std::vector<uint64_t>{0b11, 0b01, 0b10}));
  EXPECT_EQ(std::vector<uint64_t>(placement.holders(1).begin(), placement.holders(1).end()),
            (std::vector<uint64_t>{0b10, 0b10, 0b11}));
  for (std::size_t l = 0; l < layers.size(); ++l) EXPECT_EQ(placement.experts(static_cast<int64_t>(l)), layers[l]);
  EXPECT_EQ(placement.max_local_experts(0), 2);
  EXPECT_EQ(placement.max_local_experts(1), 3);
}

TEST(ExpertPlacement, BeginsInSlices) {
  const ExpertPlacement placement = ExpertPlacement::contiguous(3, 5, worker_ranks(2));
  EXPECT_EQ(placement.epoch(), 1U);
  EXPECT_EQ(placement.num_layers(), 3);
  EXPECT_EQ(placement.experts(2), (LayerPlacement{{{0}, {1}, {2}}, {{3}, {4}}}));
}

TEST(ExpertPlacement, RefusesWithTheLayer) {
  const std::vector<LayerPlacement> layers = {{{{0}, {1}}}, {{{0}}}};
  try {
    const ExpertPlacement placement(1, worker_ranks(1), 2, layers);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "layer 1: expert 1 on none of the ranks 1; allowed: on one or more");
  }
  EXPECT_THROW(ExpertPlacement(1, worker_ranks(1), 2, {}), Error);
  EXPECT_THROW(ExpertPlacement::contiguous(1, 65, worker_ranks(65)), Error);
}

}  // namespace
}  // namespace ferry
