#include "moe/expert_map.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/base/error.h"

namespace ferry {
namespace {

std::vector<Rank> ranks(int count) {
  std::vector<Rank> list;
  for (int r = 1; r <= count; ++r) list.push_back({r});
  return list;
}

TEST(ExpertMap, SlicesAreConsecutiveAndDifferByOneAtMost) {
  for (const int num_experts : {1, 7, 16, 64, 256}) {
    for (const int num_ranks : {1, 2, 3, 5, 7}) {
      if (num_ranks > num_experts) continue;
      const ExpertMap map = ExpertMap::contiguous(num_experts, ranks(num_ranks));
      int32_t next = 0;
      for (int r = 0; r < num_ranks; ++r) {
        const auto local = map.experts_of(r);
        EXPECT_TRUE(static_cast<int>(local.size()) == num_experts / num_ranks ||
                    static_cast<int>(local.size()) == num_experts / num_ranks + 1);
        for (std::size_t i = 0; i < local.size(); ++i, ++next) {
          EXPECT_EQ(map.logical_of(local[i]).value, next);
          EXPECT_EQ(map.rank_idx_of(local[i]), r);
          EXPECT_EQ(map.local_idx_of(local[i]), static_cast<int32_t>(i));
          ASSERT_EQ(map.copies_of({next}).size(), 1U);
          EXPECT_EQ(map.copies_of({next})[0], local[i]);
        }
      }
      EXPECT_EQ(next, num_experts);
    }
  }
}

TEST(ExpertMap, RefusesMoreWorkersThanExperts) {
  try {
    ExpertMap::contiguous(4, ranks(5));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "5 expert workers for 4 experts; allowed: 1 to 4");
  }
}

}  // namespace
}  // namespace ferry
