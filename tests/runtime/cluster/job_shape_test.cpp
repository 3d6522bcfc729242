#include "runtime/cluster/job_shape.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(JobShape, OneCoordinatorKeepsTheLaunchersNumbers) {
  const JobShape shape{.num_ranks = 4};
  EXPECT_EQ(shape.num_workers(), 3);
  for (int32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(shape.in_job(Rank{r}), Rank{r});
    EXPECT_EQ(shape.is_coordinator(Rank{r}), r == 0);
  }
  EXPECT_EQ(shape.launched(Rank{3}), Rank{3});
}

TEST(JobShape, EachCoordinatorIsRankZeroToTheSameWorkers) {
  const JobShape shape{.num_ranks = 5, .num_coordinators = 2};
  EXPECT_EQ(shape.num_workers(), 3);
  EXPECT_EQ(shape.in_job(Rank{0}), Rank{0});
  EXPECT_EQ(shape.in_job(Rank{1}), Rank{0});
  EXPECT_TRUE(shape.is_coordinator(Rank{1}));
  EXPECT_FALSE(shape.is_coordinator(Rank{2}));
  for (int32_t w = 1; w <= 3; ++w) {
    EXPECT_EQ(shape.launched(Rank{w}), Rank{w + 1});
    EXPECT_EQ(shape.in_job(shape.launched(Rank{w})), Rank{w});
  }
}

}  // namespace
}  // namespace ferry
