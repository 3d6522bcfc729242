#include "runtime/schedule/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ferry {
namespace {

using Blocks = std::vector<int32_t>;

TEST(BlockPool, HandsOutEveryBlockOnce) {
  BlockPool pool(7);
  Blocks all;
  ASSERT_TRUE(pool.allocate(3, all));
  ASSERT_TRUE(pool.allocate(4, all));
  std::sort(all.begin(), all.end());
  Blocks expected(7);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_used(), 7);
}

TEST(BlockPool, IsAllOrNothing) {
  BlockPool pool(5);
  Blocks blocks;
  EXPECT_FALSE(pool.allocate(6, blocks));
  EXPECT_EQ(pool.num_free(), 5);
  ASSERT_TRUE(pool.allocate(3, blocks));
  EXPECT_FALSE(pool.allocate(3, blocks));
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(blocks.size(), 3U);
}

TEST(BlockPool, ZeroBlocksAreAlwaysThere) {
  BlockPool pool(0);
  Blocks blocks;
  EXPECT_TRUE(pool.allocate(0, blocks));
  EXPECT_FALSE(pool.allocate(1, blocks));
  EXPECT_TRUE(blocks.empty());
}

TEST(BlockPool, ABlockIsFreeWhenItsLastHolderLetsGo) {
  BlockPool pool(4);
  Blocks blocks;
  ASSERT_TRUE(pool.allocate(3, blocks));
  const Blocks shared(blocks.begin(), blocks.begin() + 2);
  pool.share(shared);
  EXPECT_EQ(pool.num_references(blocks[0]), 2);
  EXPECT_EQ(pool.num_references(blocks[2]), 1);
  pool.release(blocks);
  EXPECT_EQ(pool.num_used(), 2);
  EXPECT_EQ(pool.num_references(blocks[2]), 0);
  pool.release(shared);
  EXPECT_EQ(pool.num_used(), 0);
}

TEST(BlockPool, CountsHoldersUnderRandomUse) {
  std::mt19937 rng(11);
  BlockPool pool(53);
  std::vector<Blocks> held;
  std::vector<int64_t> holders(53, 0);
  const auto count = [&](const Blocks& blocks, int64_t change) {
    for (const int32_t block : blocks) holders[static_cast<std::size_t>(block)] += change;
  };
  for (int i = 0; i < 5000; ++i) {
    Blocks blocks;
    if (!held.empty() && rng() % 2 == 0) {
      std::swap(held[rng() % held.size()], held.back());
      count(held.back(), -1);
      pool.release(held.back());
      held.pop_back();
    } else if (!held.empty() && rng() % 3 == 0) {
      held.push_back(held[rng() % held.size()]);
      count(held.back(), 1);
      pool.share(held.back());
    } else if (pool.allocate(static_cast<int64_t>(rng() % 17), blocks)) {
      for (const int32_t block : blocks) EXPECT_EQ(holders[static_cast<std::size_t>(block)], 0) << block;
      count(blocks, 1);
      held.push_back(std::move(blocks));
    }
    EXPECT_EQ(std::ranges::count_if(holders, [](int64_t n) { return n > 0; }), pool.num_used());
  }
  for (int32_t block = 0; block < 53; ++block) EXPECT_EQ(pool.num_references(block), holders[static_cast<std::size_t>(block)]);
}

TEST(BlockPool, WhatIsKeptIsIdleWithoutHolders) {
  BlockPool pool(6);
  Blocks blocks;
  ASSERT_TRUE(pool.allocate(4, blocks));
  const Blocks kept(blocks.begin(), blocks.begin() + 2);
  pool.keep(kept);
  EXPECT_EQ(pool.num_used(), 4);
  EXPECT_EQ(pool.num_idle(), 0);
  pool.release(blocks);
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.num_idle(), 2);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_TRUE(pool.is_idle(kept[0]));
  Blocks others;
  EXPECT_FALSE(pool.allocate(5, others)) << "idle blocks are not free";
  pool.share(kept);
  EXPECT_EQ(pool.num_references(kept[1]), 1);
  EXPECT_EQ(pool.num_idle(), 0);
  EXPECT_EQ(pool.num_used(), 2);
  pool.let_go(Blocks{kept[0]});
  EXPECT_EQ(pool.num_used(), 2) << "it still has a holder";
  pool.release(kept);
  EXPECT_EQ(pool.num_idle(), 1);
  EXPECT_EQ(pool.num_free(), 5);
  pool.let_go(Blocks{kept[1]});
  EXPECT_EQ(pool.num_idle(), 0);
  EXPECT_EQ(pool.num_free(), 6);
}

TEST(BlockPoolDeathTest, KeepsOnceWhatHasAHolder) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  BlockPool pool(3);
  Blocks blocks;
  ASSERT_TRUE(pool.allocate(1, blocks));
  EXPECT_DEATH(pool.let_go(blocks), "is not kept");
  pool.keep(blocks);
  EXPECT_DEATH(pool.keep(blocks), "is kept twice");
  pool.release(blocks);
  EXPECT_DEATH(pool.release(blocks), "is free");
  pool.let_go(blocks);
  EXPECT_DEATH(pool.keep(blocks), "is free");
}

TEST(BlockPoolDeathTest, RefusesWhatNobodyHolds) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  BlockPool pool(3);
  Blocks blocks;
  ASSERT_TRUE(pool.allocate(1, blocks));
  pool.release(blocks);
  EXPECT_DEATH(pool.release(blocks), "is free");
  EXPECT_DEATH(pool.share(blocks), "is free");
  EXPECT_DEATH(pool.release(Blocks{3}), "block 3 of 3");
  EXPECT_DEATH(pool.release(Blocks{-1}), "block -1 of 3");
}

}  // namespace
}  // namespace ferry
