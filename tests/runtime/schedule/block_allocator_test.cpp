#include "runtime/schedule/block_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ferry {
namespace {

TEST(BlockAllocator, HandsOutEveryBlockOnce) {
  BlockAllocator allocator(7);
  auto first = allocator.allocate(3);
  auto second = allocator.allocate(4);
  ASSERT_TRUE(first && second);
  std::vector<int32_t> all = *first;
  all.insert(all.end(), second->begin(), second->end());
  std::sort(all.begin(), all.end());
  std::vector<int32_t> expected(7);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(allocator.num_free(), 0);
  EXPECT_EQ(allocator.num_used(), 7);
}

TEST(BlockAllocator, IsAllOrNothing) {
  BlockAllocator allocator(5);
  EXPECT_FALSE(allocator.allocate(6).has_value());
  EXPECT_EQ(allocator.num_free(), 5);
  ASSERT_TRUE(allocator.allocate(3).has_value());
  EXPECT_FALSE(allocator.allocate(3).has_value());
  EXPECT_EQ(allocator.num_free(), 2);
}

TEST(BlockAllocator, ZeroBlocksAreAlwaysThere) {
  BlockAllocator allocator(0);
  const auto none = allocator.allocate(0);
  ASSERT_TRUE(none.has_value());
  EXPECT_TRUE(none->empty());
  EXPECT_FALSE(allocator.allocate(1).has_value());
}

TEST(BlockAllocator, NeverSharesABlockUnderRandomUse) {
  std::mt19937 rng(11);
  BlockAllocator allocator(53);
  std::vector<std::vector<int32_t>> held;
  std::vector<int> owners(53, 0);
  for (int i = 0; i < 5000; ++i) {
    if (!held.empty() && rng() % 2 == 0) {
      std::swap(held[rng() % held.size()], held.back());
      for (const int32_t block : held.back()) --owners[static_cast<std::size_t>(block)];
      allocator.release(held.back());
      held.pop_back();
    } else if (auto blocks = allocator.allocate(static_cast<int64_t>(rng() % 17))) {
      for (const int32_t block : *blocks) ++owners[static_cast<std::size_t>(block)];
      held.push_back(std::move(*blocks));
    }
    EXPECT_EQ(std::accumulate(owners.begin(), owners.end(), int64_t{0}), allocator.num_used());
    EXPECT_LE(*std::max_element(owners.begin(), owners.end()), 1);
  }
}

TEST(BlockAllocatorDeathTest, RefusesADoubleOrForeignRelease) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  BlockAllocator allocator(3);
  const auto blocks = allocator.allocate(1);
  ASSERT_TRUE(blocks.has_value());
  allocator.release(*blocks);
  EXPECT_DEATH(allocator.release(*blocks), "released twice");
  EXPECT_DEATH(allocator.release(std::vector<int32_t>{3}), "block 3 of 3");
  EXPECT_DEATH(allocator.release(std::vector<int32_t>{-1}), "block -1 of 3");
}

}  // namespace
}  // namespace ferry
