#include "runtime/base/peak_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace ferry {
namespace {

constexpr int64_t kMore = int64_t{64} << 20;

void take_and_give_back(int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  std::memset(data, 1, size);
  munmap(data, size);
}

TEST(PeakMemory, WhatAMeasurementTakesIsNotCounted) {
  if (access("/proc/self/clear_refs", W_OK) != 0) GTEST_SKIP() << "the kernel has no /proc/self/clear_refs";
  const int64_t before = peak_resident_bytes(), bytes = before + kMore;
  EXPECT_GT(before, 0);
  {
    const MeasurementMemory measurement;
    take_and_give_back(bytes);
    EXPECT_EQ(peak_resident_bytes(), before);
  }
  EXPECT_LT(peak_resident_bytes(), before + kMore / 2);
  take_and_give_back(bytes);
  EXPECT_GE(peak_resident_bytes(), bytes) << "what is no measurement's is";
  { const MeasurementMemory measurement; }
  EXPECT_GE(peak_resident_bytes(), bytes) << "and stays";
}

}  // namespace
}  // namespace ferry
