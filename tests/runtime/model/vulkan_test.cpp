#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/decoder_steps.h"
#include "tests/support/vulkan_device.h"

// The decoder on a Vulkan device, against the same on the CPU: prompts in pieces, drafts held, replayed and forgotten, the MTP
// layer, in each kind of model and width.

namespace ferry {
namespace {

/// The root of the mean square of two sets of values' differences; infinite where one is not finite.
double distance(const test::StepLogits& a, const test::StepLogits& b) {
  const std::vector<float> left = a.values(), right = b.values();
  double squares = 0;
  for (std::size_t i = 0; i < left.size(); ++i) squares += (left[i] - right[i]) * (left[i] - right[i]);
  return std::isfinite(squares) ? std::sqrt(squares / static_cast<double>(left.size())) : INFINITY;
}

/// Likewise from zeros.
double size_of(const test::StepLogits& a) {
  return distance(a, {.dtype = a.dtype, .bytes = std::vector<std::byte>(a.bytes.size())});
}

std::vector<test::StepLogits> run_on_cpu(const test::ModelCase& model) {
  ThreadPool pool(2);
  const Backend cpu = select_backend("auto", "auto", model.dtype);
  Stream stream(cpu, pool);
  return run_decoder_steps(model, stream);
}

std::string test_name(const testing::TestParamInfo<test::ModelCase>& info) {
  std::string name = case_name(info.param);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

using Order = vulkan::VulkanStream::Order;

std::vector<test::StepLogits> run_on_device(const vulkan::PhysicalDevice& physical, const test::ModelCase& model, Order order) {
  test::VulkanDevice device(physical, model.dtype);
  device.stream.set_order(order);
  return run_decoder_steps(model, device.stream);
}

class VulkanDecoderInFp32 : public testing::TestWithParam<test::ModelCase> {};

TEST_P(VulkanDecoderInFp32, ComputesWhatTheCpuComputes) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const std::vector<test::StepLogits> expected = run_on_cpu(GetParam()),
                                      actual = run_on_device(*physical, GetParam(), Order::kAsRecorded);
  EXPECT_TRUE(actual == run_on_device(*physical, GetParam(), Order::kReversed))
      << "other bits in another order of what is independent";
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_LE(distance(actual[i], expected[i]), 5e-5 * size_of(expected[i])) << "step " << i;
}

INSTANTIATE_TEST_SUITE_P(Models, VulkanDecoderInFp32,
                         testing::Values(test::ModelCase{"qwen3_5_moe", DType::kF32, "none"},
                                         test::ModelCase{"qwen3_5", DType::kF32, "none"},
                                         test::ModelCase{"qwen3_next", DType::kF32, "none"},
                                         test::ModelCase{"lfm2_moe", DType::kF32, "none"},
                                         test::ModelCase{"lfm2", DType::kF32, "none"}),
                         test_name);

TEST(VulkanRehearsal, MakesEverythingReadyThatStepsNeed) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const test::ModelCase model{"qwen3_5_moe", DType::kF32, "none"};
  test::VulkanDevice device(*physical, model.dtype);
  const vulkan::Pipelines& pipelines = device.backend.device().pipelines();
  device.backend.rehearse(device.stream, [&] { run_decoder_steps(model, device.stream); });
  const int64_t num_rehearsed = pipelines.num_made();
  EXPECT_GT(num_rehearsed, 20);
  EXPECT_EQ(device.stream.num_dispatches(), 0);
  const std::vector<test::StepLogits> logits = run_decoder_steps(model, device.stream);
  EXPECT_EQ(pipelines.num_made(), num_rehearsed);
  test::VulkanDevice unprepared(*physical, model.dtype);
  EXPECT_TRUE(logits == run_decoder_steps(model, unprepared.stream));
}

// Rounding to bf16 or to codes flips values to their neighbours here and there, which the next layers carry on. So the device
// is held to be as far from the model in fp32 as the CPU is.
class VulkanDecoderRounded : public testing::TestWithParam<test::ModelCase> {};

TEST_P(VulkanDecoderRounded, IsAsCloseToFp32AsTheCpu) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const std::vector<test::StepLogits> exact = run_on_cpu({GetParam().model, DType::kF32, "none"}),
                                      on_cpu = run_on_cpu(GetParam()),
                                      actual = run_on_device(*physical, GetParam(), Order::kAsRecorded);
  ASSERT_EQ(actual.size(), exact.size());
  double of_device = 0, of_cpu = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    of_device += distance(actual[i], exact[i]);
    of_cpu += distance(on_cpu[i], exact[i]);
  }
  EXPECT_LE(of_device, 1.25 * of_cpu);
}

INSTANTIATE_TEST_SUITE_P(Models, VulkanDecoderRounded,
                         testing::Values(test::ModelCase{"qwen3_5_moe", DType::kBF16, "none"},
                                         test::ModelCase{"lfm2_moe", DType::kBF16, "none"},
                                         test::ModelCase{"fp8_qwen3_5_moe", DType::kBF16, "none"},
                                         test::ModelCase{"qwen3_5_moe_wide", DType::kF32, "w8a8"},
                                         test::ModelCase{"qwen3_5_moe_wide", DType::kBF16, "w8a8"}),
                         test_name);

}  // namespace
}  // namespace ferry
