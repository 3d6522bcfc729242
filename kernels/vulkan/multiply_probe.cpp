#include "kernels/vulkan/multiply_probe.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "kernels/vulkan/matmul_plan.h"
#include "kernels/vulkan/pipelines.h"
#include "kernels/vulkan/queue.h"
#include "kernels/vulkan/shaders/push_probe.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

using Way = MultiplyProbe::Way;

constexpr uint32_t kFactor = 1;
constexpr uint32_t kCodes = 0x7f03fb81;  // 127, 3, -5 and -127
constexpr uint32_t kFirstWorkgroups = 16, kMostWorkgroups = 65535;

/// The device's fragment for such factors, if products use it.
Fragment fragment_for(const DeviceTraits& traits, DType factors) {
  if (factors == DType::kF32) return {};
  const bool is_of_codes = factors == DType::kI8;
  if (!has_matrices(traits, {is_of_codes ? WeightFormat::kInt8 : WeightFormat::kBF16})) return {};
  return is_of_codes ? traits.int8 : traits.bf16;
}

/// Its sums are whole numbers below 2^21, which fp32 holds.
Way matrix_way(const DeviceTraits& traits, DType factors, Fragment f, uint32_t lefts, uint32_t rights) {
  constexpr uint32_t kSubgroups = 4, kRounds = 1024;
  const uint32_t num_sums = kSubgroups * lefts * rights * f.m * f.n;
  return {.is_of_codes = factors == DType::kI8,
          .fragment = f,
          .invocations = kSubgroups * traits.subgroup_size,
          .lefts = lefts,
          .rights = rights,
          .num_rounds = kRounds,
          .num_sums = num_sums,
          .operations = 2.0 * f.k * num_sums * kRounds};
}

Way plain_way(DType factors) {
  constexpr uint32_t kInvocations = 256, kChains = 16, kRounds = 512;
  const bool is_of_codes = factors == DType::kI8;
  return {.is_of_codes = is_of_codes,
          .fragment = {},
          .invocations = kInvocations,
          .lefts = kChains,
          .rights = 1,
          .num_rounds = kRounds,
          .num_sums = kInvocations * kChains,
          .operations = (is_of_codes ? 8.0 : 2.0) * kInvocations * kChains * kRounds};
}

/// The bits of a sum that begins with `first`, as in shaders/multiply_plain.comp.
uint32_t bits_of_sum(uint32_t first, uint32_t num_rounds) {
  auto sum = static_cast<float>(first);
  for (uint32_t round = 0; round < num_rounds; ++round) sum = sum * float{kFactor} + float{kFactor};
  return std::bit_cast<uint32_t>(sum);
}
uint32_t bits_of_code_sum(uint32_t sum, uint32_t num_rounds) {
  const auto code = [](uint32_t word, uint32_t i) { return static_cast<int32_t>(static_cast<int8_t>(word >> (8 * i))); };
  for (uint32_t round = 0; round < num_rounds; ++round) {
    int32_t dot = 0;
    for (uint32_t i = 0; i < 4; ++i) dot += code(kCodes, i) * code(sum, i);
    sum += static_cast<uint32_t>(dot);
  }
  return sum;
}

/// As the shaders want it: of matrices the sum of the first fragments, otherwise the bits of all sums of an invocation, xored.
uint32_t expected_sums(const Way& way) {
  if (way.fragment) return way.num_rounds * way.fragment.k * kFactor;
  uint32_t bits = 0;
  for (uint32_t i = 1; i <= way.lefts; ++i)
    bits ^= way.is_of_codes ? bits_of_code_sum(i, way.num_rounds) : bits_of_sum(i, way.num_rounds);
  return bits;
}

Kernel kernel_of(const Way& way, uint32_t subgroup_size) {
  if (!way.fragment)
    return {find_shader(way.is_of_codes ? "multiply_plain.int8" : "multiply_plain.f32"), {way.invocations, way.lefts}};
  return {find_shader(way.is_of_codes ? "multiply_matrices.int8" : "multiply_matrices.bf16"),
          {way.invocations, way.fragment.m, way.fragment.n, way.fragment.k, subgroup_size, way.lefts, way.rights}};
}

}  // namespace

MultiplyProbe::MultiplyProbe(Device& device, Clock& clock)
    : device_(device), clock_(clock), commands_(device), num_right_(device, sizeof(uint32_t), BufferUse::kDownload) {}

std::vector<Way> MultiplyProbe::ways(DType factors) const {
  std::vector<Way> ways;
  const DeviceTraits& traits = device_.traits();
  if (const Fragment f = fragment_for(traits, factors)) {
    // More sums hide how long a product takes; fewer leave registers for more subgroups, which do so too.
    for (const auto& [lefts, rights] : {std::pair{4U, 4U}, {4U, 2U}, {2U, 2U}})
      ways.push_back(matrix_way(traits, factors, f, lefts, rights));
  }
  ways.push_back(plain_way(factors));
  return ways;
}

MultiplyProbe::Pass MultiplyProbe::multiply(const Way& way, uint32_t num_workgroups) {
  const DeviceFunctions& vk = device_.vk();
  const MultiplyPush push{.num_right = num_right_.address(),
                          .num_rounds = way.num_rounds,
                          .factor = !way.fragment && way.is_of_codes ? kCodes : kFactor,
                          .expected = expected_sums(way)};
  commands_.begin();
  vk.CmdFillBuffer(commands_.handle(), num_right_.handle(), 0, sizeof(uint32_t), 0);
  commands_.barrier();
  vk.CmdBindPipeline(commands_.handle(), VK_PIPELINE_BIND_POINT_COMPUTE,
                     device_.pipelines().get(kernel_of(way, device_.traits().subgroup_size)));
  vk.CmdPushConstants(commands_.handle(), device_.pipelines().layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
  vk.CmdDispatch(commands_.handle(), num_workgroups, 1, 1);
  commands_.barrier_to_host();
  commands_.end();
  const Clock::Time start = clock_.now();
  device_.queue().wait(device_.queue().submit(commands_.handle()));
  const std::chrono::duration<double> taken = clock_.now() - start;
  uint32_t num_right = 0;
  std::memcpy(&num_right, num_right_.host(), sizeof num_right);
  return {.seconds = taken.count(),
          .operations = way.operations * num_workgroups,
          .num_wrong = way.num_sums * num_workgroups - num_right};
}

double MultiplyProbe::flops_per_s(DType factors) {
  constexpr double kSeconds = 0.004;  // of a pass, so that handing it over does not count
  constexpr int kPasses = 2;          // of as many
  double best = 0;
  for (const Way& way : ways(factors)) {
    uint32_t num_workgroups = kFirstWorkgroups;
    for (int num_passes = 0; num_passes < kPasses;) {
      const Pass pass = multiply(way, num_workgroups);
      FERRY_CHECK_EQ(pass.num_wrong, 0u) << " of the sums";
      best = std::max(best, pass.operations / pass.seconds);
      const bool is_long = pass.seconds >= kSeconds || num_workgroups == kMostWorkgroups;
      if (is_long) ++num_passes;
      if (!is_long) num_workgroups = std::min(4 * num_workgroups, kMostWorkgroups);
    }
  }
  return best;
}

std::string multiply_unit(const DeviceTraits& traits, DType factors) {
  const bool is_of_codes = factors == DType::kI8;
  if (const Fragment f = fragment_for(traits, factors)) return fragment_text(is_of_codes ? "int8" : "bf16", f);
  return is_of_codes ? "packed dot products" : "fused multiply-adds";
}

}  // namespace ferry::vulkan
