#include "kernels/cpu/weight_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace ferry {
namespace {

TEST(WeightArena, PiecesAreZeroAlignedAndApart) {
  std::vector<std::shared_ptr<std::byte>> pieces;
  const std::vector<std::size_t> sizes = {1, 64, 100, 3 << 20, 7, 2 << 20};
  {
    WeightArena arena;
    for (const std::size_t size : sizes) pieces.push_back(arena.allocate(size));
  }  // the pieces keep their region
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces[i].get()) % 64, 0U);
    EXPECT_TRUE(std::all_of(pieces[i].get(), pieces[i].get() + sizes[i], [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(pieces[i].get(), sizes[i], static_cast<std::byte>(i + 1));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(pieces[i].get()[0], static_cast<std::byte>(i + 1));
    EXPECT_EQ(pieces[i].get()[sizes[i] - 1], static_cast<std::byte>(i + 1));
  }
}

TEST(WeightArena, ALargePieceHasARegionOfItsOwn) {
  WeightArena arena;
  const auto small = arena.allocate(64);
  const auto large = arena.allocate(std::size_t{300} << 20);
  const auto next = arena.allocate(64);
  large.get()[(std::size_t{300} << 20) - 1] = std::byte{1};
  EXPECT_EQ(next.get() - small.get(), 64) << "small pieces go on in the region they began";
}

TEST(WeightArena, ThreadsMayAllocateAtOnce) {
  WeightArena arena;
  std::vector<std::vector<std::shared_ptr<std::byte>>> pieces(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < pieces.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        pieces[t].push_back(arena.allocate(100));
        std::fill_n(pieces[t].back().get(), 100, static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < pieces.size(); ++t) {
    for (const auto& piece : pieces[t]) {
      EXPECT_TRUE(std::all_of(piece.get(), piece.get() + 100, [t](std::byte b) { return b == static_cast<std::byte>(t); }));
    }
  }
}

}  // namespace
}  // namespace ferry
