#include "launch/roof_share.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(RoofShare, SharesAreTimesAtTheRoofs) {
  const Work token{.bytes = 1e9, .flops = 2e9, .code_flops = 6e9};
  const Roofs roofs{.read_bytes_per_s = 1e10, .flops_per_s = 1e11, .code_flops_per_s = 3e11};
  const RoofShare share = share_of_roof(token, 5, roofs);
  EXPECT_DOUBLE_EQ(share.read, 0.5);
  EXPECT_DOUBLE_EQ(share.flops, 5 * (0.02 + 0.02));
  EXPECT_DOUBLE_EQ(share.nearer(), 0.5);
  EXPECT_DOUBLE_EQ(roofs.mixed_flops_per_s(token), 2e11);
}

TEST(RoofShare, WorkOfOneKindHasThatKindsRoof) {
  const Roofs roofs{.read_bytes_per_s = 1, .flops_per_s = 10, .code_flops_per_s = 30};
  EXPECT_DOUBLE_EQ(roofs.mixed_flops_per_s({.bytes = 1, .flops = 7, .code_flops = 0}), 10);
  EXPECT_DOUBLE_EQ(roofs.mixed_flops_per_s({.bytes = 1, .flops = 0, .code_flops = 7}), 30);
}

TEST(RoofShare, TheBetterOfTwoRoofsHasTheWord) {
  const Roofs best = best_of({1, 20, 300}, {10, 2, 30});
  EXPECT_EQ(best.read_bytes_per_s, 10);
  EXPECT_EQ(best.flops_per_s, 20);
  EXPECT_EQ(best.code_flops_per_s, 300);
}

TEST(RoofShare, WhatIsFasterThanARoofIsImpossible) {
  const Work token{.bytes = 100, .flops = 1, .code_flops = 0};
  const Roofs roofs{.read_bytes_per_s = 1000, .flops_per_s = 1000, .code_flops_per_s = 1000};
  EXPECT_LE(share_of_roof(token, 10, roofs).nearer(), kMostShare);
  EXPECT_GT(share_of_roof(token, 16.3, roofs).nearer(), kMostShare);
}

}  // namespace
}  // namespace ferry
