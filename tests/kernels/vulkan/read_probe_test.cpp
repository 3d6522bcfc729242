#include "kernels/vulkan/read_probe.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

TEST(ReadProbe, ReadsEveryWordAsOftenAsItSays) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  // Not a multiple of what a workgroup takes.
  ReadProbe probe(device.backend.device(), (std::size_t{1} << 20) + 48);
  probe.fill(3);
  for (const ReadProbe::Shape shape : ReadProbe::kShapes) {
    const auto words = static_cast<uint32_t>(probe.num_bytes() / 4);
    EXPECT_EQ(probe.read(shape, 1).total, 3 * words);
    EXPECT_EQ(probe.read(shape, 5).total, 15 * words) << "one after the other";
  }
}

/// Bytes a second that copies within the device's memory read: another way to use it, without a shader.
double copied_bytes_per_s(test::VulkanDevice& device, std::size_t num_bytes) {
  Storage from = device.memory().allocate(num_bytes), to = device.memory().allocate(num_bytes);
  double best = 0;
  for (int pass = 0; pass < 3; ++pass) {
    constexpr int kTimes = 4;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) device.stream.copy(from.address(), to.address(), num_bytes);
    device.stream.wait(device.stream.submit());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, kTimes * static_cast<double>(num_bytes) / taken.count());
  }
  return best;
}

// A roof that counts bytes which were not read, or takes seconds for milliseconds, is off by more than what a copy and an
// emulated shader differ by.
TEST(ReadProbe, IsOfTheOrderOfWhatACopyReads) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  const double read = device.backend.read_bytes_per_s(kBytes), copied = copied_bytes_per_s(device, kBytes);
  EXPECT_GT(read, copied / 100);
  EXPECT_LT(read, copied * 100);
}

}  // namespace
}  // namespace ferry::vulkan
