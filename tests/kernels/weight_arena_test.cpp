#include "kernels/cpu/weight_arena.h"
#include "tests/support/draws.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

namespace ferry {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;  // that weights share

/// Of `size` bytes at `start`, those in memory: in pages of 4 KiB, none where nothing is mapped.
std::size_t resident_bytes(std::byte* start, std::size_t size) {
  constexpr std::size_t kSmallPage = 4096;
  auto* first = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(start) / kSmallPage * kSmallPage);
  std::size_t num_resident = 0;
  for (std::byte* page = first; page < start + size; page += kSmallPage) {
    unsigned char is_in_memory = 0;
    if (mincore(page, kSmallPage, &is_in_memory) == 0) num_resident += is_in_memory & 1U;
  }
  return num_resident * kSmallPage;
}

std::shared_ptr<std::byte> written(WeightArena& arena, std::size_t size) {
  auto piece = arena.allocate(size);
  EXPECT_TRUE(std::all_of(piece.get(), piece.get() + size, [](std::byte b) { return b == std::byte{0}; })) << size;
  std::memset(piece.get(), 0x5a, size);
  return piece;
}

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

TEST(WeightArena, PagesThatNoPieceIsInGoBack) {
  WeightArena arena;
  const auto before = written(arena, 64);
  auto piece = written(arena, 3 * kPage);
  const auto after = written(arena, 64);
  std::byte* const start = piece.get();
  EXPECT_GE(resident_bytes(start, 3 * kPage), 3 * kPage);
  EXPECT_EQ(arena.use().page_bytes, 4 * kPage);
  piece.reset();
  EXPECT_LE(resident_bytes(start, 3 * kPage), 2 * kPage) << "what the neighbours' pages have of it";
  EXPECT_EQ(arena.use().page_bytes, 2 * kPage);
  EXPECT_EQ(arena.use().piece_bytes, 128U);
  EXPECT_EQ(before.get()[63], std::byte{0x5a});
  EXPECT_EQ(after.get()[63], std::byte{0x5a});
  EXPECT_EQ(written(arena, 3 * kPage).get(), start) << "and its room is used again";
}

TEST(WeightArena, WithoutPiecesNothingIsLeft) {
  WeightArena arena;
  for (const std::size_t size : {std::size_t{64}, 3 * kPage, std::size_t{300} << 20}) {
    auto piece = arena.allocate(size);
    std::byte* const start = piece.get();
    std::memset(start, 1, std::min(size, kPage));
    piece.reset();
    EXPECT_EQ(resident_bytes(start, std::min(size, kPage)), 0U);
    const WeightArena::Use use = arena.use();
    EXPECT_EQ(use.piece_bytes + use.page_bytes + use.region_bytes, 0U);
  }
}

/// Experts that come and go, some of which stay for long: what is taken does not grow with their number.
TEST(WeightArena, TakesNoMoreThanTheMostThatWasInUse) {
  constexpr std::size_t kGateUp = 36 << 10, kDown = 18 << 10, kNumHeld = 128;
  WeightArena arena;
  std::deque<std::shared_ptr<std::byte>> held;
  std::vector<std::shared_ptr<std::byte>> kept;
  for (int i = 0; i < test::draws(40'000, 10'000); ++i) {  // 1 GiB in all, or a quarter
    held.push_back(written(arena, i % 2 == 0 ? kGateUp : kDown));
    if (i % 1000 == 0) kept.push_back(held.back());
    if (held.size() > kNumHeld) held.pop_front();
    ASSERT_LE(arena.use().page_bytes, 8 * kPage) << "for 5 MiB at most, after " << i;
  }
  EXPECT_EQ(arena.use().region_bytes, std::size_t{256} << 20);
  held.clear();
  EXPECT_EQ(arena.use().piece_bytes, kept.size() * kGateUp);
}

TEST(WeightArena, WhatWasUsedBeforeIsZeroAgain) {
  std::mt19937 random(2);
  WeightArena arena;
  std::vector<std::shared_ptr<std::byte>> held(24);
  for (int i = 0; i < test::draws(2000, 500); ++i)
    held[random() % held.size()] = written(arena, 1 + random() % (i % 10 == 0 ? 3 * kPage : 50000));
}

TEST(WeightArena, ThreadsMayAllocateAtOnce) {
  WeightArena arena;
  std::vector<std::vector<std::shared_ptr<std::byte>>> pieces(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < pieces.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        auto gone = arena.allocate(200);
        pieces[t].push_back(arena.allocate(100));
        std::fill_n(gone.get(), 200, std::byte{0xff});
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
