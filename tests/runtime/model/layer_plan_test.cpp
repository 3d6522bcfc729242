#include "runtime/model/layer_plan.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

struct Cut {
  int64_t columns;     // of the network
  int64_t block_cols;  // under one scale
  int64_t num_slices;  // 0: none
};

TEST(Slices, FollowFromTheShapeAlone) {
  for (const Cut& cut : {Cut{17408, 1, 8}, Cut{17408, 128, 8}, Cut{12288, 128, 8}, Cut{3584, 1, 7}, Cut{2560, 1, 5},
                         Cut{17408, 256, 4}, Cut{1408, 1, 4}, Cut{96, 1, 3}, Cut{96, 64, 0}, Cut{256, 128, 2}, Cut{128, 1, 4},
                         Cut{32, 1, 0}, Cut{100, 1, 0}, Cut{1024, int64_t{1} << 40, 0}}) {
    const std::optional<MoePlan> slices = slice({.intermediate_dim = cut.columns}, cut.block_cols);
    ASSERT_EQ(slices ? slices->num_experts : 0, cut.num_slices) << cut.columns << " in blocks of " << cut.block_cols;
    if (!slices) continue;
    EXPECT_TRUE(slices->is_sliced);
    EXPECT_EQ(slices->top_k, cut.num_slices);
    EXPECT_EQ(slices->intermediate_dim * cut.num_slices, cut.columns);
    EXPECT_EQ(slices->intermediate_dim % cut.block_cols, 0);
    EXPECT_EQ(slices->shared_intermediate_dim, 0);
  }
}

}  // namespace
}  // namespace ferry
