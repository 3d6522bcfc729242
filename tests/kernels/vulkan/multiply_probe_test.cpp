#include "kernels/vulkan/multiply_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kernels/vulkan/shaders/push_probe.h"
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

/// Operations a second of a product of ones with ones, in which every result is k: another kernel, whose factors come from
/// memory.
double product_flops_per_s(test::VulkanDevice& device, int64_t size) {
  constexpr int64_t kK = 256;
  Stream& stream = device.stream;
  Matrix ones(DType::kBF16, size, kK);
  std::ranges::fill(std::span(ones.view().row<bfloat16>(0), static_cast<std::size_t>(size * kK)), to_bfloat16(1.0F));
  const auto weights = device.backend.backend().matmul().pack(ones.view());
  Matrix x(device.memory(), DType::kBF16, size, kK), out(device.memory(), DType::kBF16, size, size);
  copy_rows(stream, ones.view(), x.view());
  stream.wait(stream.submit());
  double best = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    const PackedMatrix* group = weights.get();
    const auto count = static_cast<int32_t>(size);
    grouped_matmul(stream, {.rows = {x.view(), {}}, .counts = {&count, 1}, .weights = {&group, 1}, .out = out.view()});
    stream.wait(stream.submit());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * static_cast<double>(size * size * kK) / taken.count());
  }
  Matrix host(DType::kBF16, size, size);
  copy_rows(stream, out.view(), host.view());
  stream.wait(stream.submit());
  EXPECT_EQ(std::ranges::count_if(std::span(host.view().row<bfloat16>(0), static_cast<std::size_t>(size * size)),
                                  [](bfloat16 value) { return to_float(value) != kK; }),
            0);
  return best;
}

// A roof that counts what was not multiplied, or takes seconds for milliseconds, is off by more than what a product reaches of
// it: a device that waits for memory and to be asked, a thousandth.
TEST(MultiplyProbe, IsOfTheOrderOfWhatAProductReaches) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical, DType::kBF16);
  const bool is_emulated = physical->info.kind == "CPU";
  const double roof = device.backend.flops_per_s(DType::kBF16), product = product_flops_per_s(device, is_emulated ? 256 : 4096);
  EXPECT_GT(roof, product / 10);
  EXPECT_LT(roof, product * 1000);
}

}  // namespace
}  // namespace ferry::vulkan
