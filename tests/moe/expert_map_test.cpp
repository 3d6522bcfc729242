#include "moe/expert_map.h"

#include <gtest/gtest.h>

#include <algorithm>
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

void expect_map_error(uint32_t epoch, const std::vector<Rank>& on, const LayerPlacement& experts, const std::string& message) {
  try {
    const ExpertMap map(epoch, on, 3, experts);
    FAIL() << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(ExpertMap, HoldsCopiesInTheGivenOrder) {
  const ExpertMap map(7, std::vector<Rank>{{4}, {2}, {9}}, 3, {{{2}, {0}}, {}, {{1}, {2}, {0}}});
  EXPECT_EQ(map.epoch(), 7U);
  EXPECT_EQ(map.num_logical(), 3);
  EXPECT_EQ(map.num_physical(), 5);
  EXPECT_TRUE(map.experts_of(1).empty());
  for (int32_t p = 0; p < 5; ++p) {
    const PhysicalExpertId physical{p};
    const std::span<const PhysicalExpertId> copies = map.copies_of(map.logical_of(physical));
    EXPECT_EQ(std::count(copies.begin(), copies.end(), physical), 1);
    EXPECT_EQ(map.experts_of(map.rank_idx_of(physical))[static_cast<std::size_t>(map.local_idx_of(physical))], physical);
  }
  ASSERT_EQ(map.copies_of({2}).size(), 2U);
  EXPECT_EQ(map.rank_idx_of(map.copies_of({2})[0]), 0);
  EXPECT_EQ(map.rank_idx_of(map.copies_of({2})[1]), 2);
  EXPECT_EQ(map.local_idx_of(map.copies_of({2})[1]), 1);
}

TEST(ExpertMap, RefusesWhatIsNoPlacement) {
  expect_map_error(1, ranks(2), {{{0}, {1}}, {{1}}}, "expert 2 on none of the ranks 1, 2; allowed: on one or more");
  expect_map_error(1, ranks(2), {{{0}, {1}}, {{2}, {1}, {2}}}, "expert 2 on rank 2 twice; allowed: copies on different ranks");
  expect_map_error(1, ranks(2), {{{0}, {1}}, {{2}, {3}}}, "expert 3 on rank 2; allowed: 0 to 2");
  expect_map_error(1, ranks(2), {{{0}, {1}, {2}}}, "experts of 1 ranks for ranks 1, 2; allowed: a list for each");
  expect_map_error(1, {{5}, {5}}, {{{0}, {1}, {2}}, {}}, "rank 5 twice in an expert map; allowed: once");
  expect_map_error(0, ranks(1), {{{0}, {1}, {2}}}, "an expert map of epoch 0; allowed: 1 or more");
}

}  // namespace
}  // namespace ferry
