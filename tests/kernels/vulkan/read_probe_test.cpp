#include "kernels/vulkan/read_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iterator>

#include "tests/support/planned_clock.h"
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

/// A pass that takes 4 ms is repeated until that makes 10 ms. That it reads so often is proved above.
TEST(ReadProbe, TheRoofIsWhatWasReadByItsTime) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  PlannedClock clock(std::chrono::milliseconds(4));
  ReadProbe probe(device.backend.device(), kBytes, clock);
  EXPECT_DOUBLE_EQ(probe.bytes_per_s(), 3.0 * kBytes / 0.004);
}

TEST(ReadProbe, TheRoofIsThatOfTheFastestPass) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  constexpr int64_t kPasses = 3;  // of a shape: the first finds how often it is to be read
  for (const int64_t fastest : {int64_t{1}, kPasses * std::ssize(ReadProbe::kShapes) - 1}) {
    PlannedClock clock([=](int64_t look) { return std::chrono::milliseconds(look == 2 * fastest + 1 ? 5 : 10); });
    ReadProbe probe(device.backend.device(), kBytes, clock);
    EXPECT_DOUBLE_EQ(probe.bytes_per_s(), kBytes / 0.005) << fastest;
  }
}

}  // namespace
}  // namespace ferry::vulkan
