#include "kernels/vulkan/multiply_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/vulkan/shaders/push_probe.h"
#include "tests/support/planned_clock.h"
#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

constexpr DType kFactors[] = {DType::kF32, DType::kBF16, DType::kI8};

TEST(MultiplyProbe, EverySumIsRight) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical, DType::kBF16);
  MultiplyProbe probe(device.backend.device());
  for (const DType factors : kFactors) {
    for (const MultiplyProbe::Way& way : probe.ways(factors)) {
      for (const uint32_t num_workgroups : {1U, 5U}) {
        const MultiplyProbe::Pass pass = probe.multiply(way, num_workgroups);
        EXPECT_EQ(pass.num_wrong, 0u) << dtype_name(factors) << " " << way.lefts << "x" << way.rights;
        EXPECT_EQ(pass.operations, num_workgroups * way.operations);
      }
    }
  }
}

PFN_vkCmdPushConstants push_constants = nullptr;  // the driver's
enum class Fault : uint8_t { kNone, kARoundLess, kOtherFactor } fault;

/// Does less than was asked for, or something else.
VKAPI_ATTR void VKAPI_CALL push_faulty(VkCommandBuffer commands, VkPipelineLayout layout, VkShaderStageFlags stages,
                                       uint32_t offset, uint32_t size, const void* values) {
  MultiplyPush push;
  std::memcpy(&push, values, sizeof push);
  if (fault == Fault::kARoundLess) --push.num_rounds;
  if (fault == Fault::kOtherFactor) push.factor += 2;
  push_constants(commands, layout, stages, offset, size, &push);
}

TEST(MultiplyProbe, ProductsThatWereNotDoneAreSeen) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical, DType::kBF16);
  MultiplyProbe probe(device.backend.device());
  push_constants = std::exchange(device.backend.device().vk().CmdPushConstants, &push_faulty);
  for (const DType factors : kFactors) {
    for (const MultiplyProbe::Way& way : probe.ways(factors)) {
      for (const Fault planted : {Fault::kNone, Fault::kARoundLess, Fault::kOtherFactor}) {
        fault = planted;
        EXPECT_EQ(probe.multiply(way, 3).num_wrong, planted == Fault::kNone ? 0 : 3 * way.num_sums) << dtype_name(factors);
      }
    }
  }
}

/// A way's operations by its own words are those that its sums are made of: each has a product of k elements (a packed one of
/// 4, a plain one of 1) in every round.
TEST(MultiplyProbe, CountsTwoOperationsAMultiplyAdd) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical, DType::kBF16);
  MultiplyProbe probe(device.backend.device());
  for (const DType factors : kFactors) {
    for (const MultiplyProbe::Way& way : probe.ways(factors)) {
      const double k = way.fragment ? way.fragment.k : factors == DType::kI8 ? 4 : 1;
      EXPECT_EQ(way.operations, 2 * k * way.num_rounds * way.num_sums);
    }
  }
}

/// Of the best way, whose operations are counted above. A pass of 4 ms is long enough for its first number of workgroups.
TEST(MultiplyProbe, TheRoofIsWhatWasMultipliedByItsTime) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical, DType::kBF16);
  PlannedClock clock(std::chrono::milliseconds(4));
  MultiplyProbe probe(device.backend.device(), clock);
  for (const DType factors : kFactors) {
    constexpr double kWorkgroups = 16;
    double most = 0;
    for (const MultiplyProbe::Way& way : probe.ways(factors)) most = std::max(most, way.operations);
    EXPECT_DOUBLE_EQ(probe.flops_per_s(factors), kWorkgroups * most / 0.004) << dtype_name(factors);
  }
}

}  // namespace
}  // namespace ferry::vulkan
