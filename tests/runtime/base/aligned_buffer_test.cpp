#include "runtime/base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"
#include "runtime/base/lazy_pages.h"

namespace ferry {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

int64_t count_zeros(const AlignedBuffer& buffer) {
  return std::count(buffer.data(), buffer.data() + buffer.size(), std::byte{0});
}

TEST(AlignedBuffer, StartsAsZerosAtItsBoundary) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{64}, std::size_t{1000}, kHugePage - 1, kHugePage, kHugePage + 1}) {
    for (int round = 0; round < 3; ++round) {  // what is freed with other contents comes back as zeros
      AlignedBuffer buffer(size);
      EXPECT_EQ(buffer.size(), size);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (size < kHugePage ? AlignedBuffer::kAlignment : kHugePage), 0U);
      EXPECT_EQ(count_zeros(buffer), static_cast<int64_t>(size));
      std::memset(buffer.data(), 0x5a, size);
    }
  }
  EXPECT_EQ(AlignedBuffer().data(), nullptr);
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
}

TEST(AlignedBuffer, MovesWithWhatItHolds) {
  for (const std::size_t size : {std::size_t{100}, 3 * kHugePage}) {
    AlignedBuffer first(size), second(64);
    first.data()[size - 1] = std::byte{7};
    const std::byte* data = first.data();
    second = std::move(first);
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(second.size(), size);
    EXPECT_EQ(second.data()[size - 1], std::byte{7});
    EXPECT_EQ(first.size(), 0U);  // NOLINT(bugprone-use-after-move): its state is said
  }
}

TEST(AlignedBuffer, TakesNoMemoryBeforeItIsTouched) {
  const int64_t before = untouched_bytes();
  AlignedBuffer buffer(static_cast<std::size_t>(64 * kMiB));
  EXPECT_EQ(untouched_bytes() - before, 64 * kMiB);
  std::memset(buffer.data() + 8 * kMiB, 1, static_cast<std::size_t>(16 * kMiB));
  EXPECT_EQ(untouched_bytes() - before, 48 * kMiB);
  buffer = {};
  EXPECT_EQ(untouched_bytes(), before);
}

TEST(AlignedBuffer, WhatIsPromisedIsNotPromisedAgain) {
  // Three quarters, because other processes may give memory back meanwhile.
  const int64_t most = available_memory_bytes() / 4 * 3;
  require_memory(most, "three quarters");
  const AlignedBuffer first(static_cast<std::size_t>(most));
  EXPECT_THROW(require_memory(most, "three quarters again"), Error);
  EXPECT_THROW(AlignedBuffer(static_cast<std::size_t>(most)), Error);
}

}  // namespace
}  // namespace ferry
