#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "kernels/ops.h"
#include "tests/support/vulkan_device.h"

// What ops say that they need besides their arguments, against what they take.

namespace ferry::vulkan {
namespace {

using Run = std::function<void(test::VulkanDevice&)>;

/// `run` has an op of these limits take the most that it can.
void expect_exact(const PhysicalDevice& physical, const OpLimits& limits, const Run& run) {
  test::VulkanDevice enough(physical, limits.dtype), too_little(physical, limits.dtype);
  const auto told = static_cast<std::size_t>(enough.backend.scratch_bytes(limits));
  ASSERT_GT(told, 1U);
  enough.backend.reserve_scratch(enough.stream, limits);
  too_little.stream.reserve_scratch(told - 1);
  for (test::VulkanDevice* device : {&enough, &too_little}) {
    run(*device);
    device->stream.wait(device->stream.submit());
  }
  EXPECT_EQ(enough.stream.scratch_bytes(), told);
  EXPECT_GT(too_little.stream.scratch_bytes(), told) << "less would not have done";
}

/// Of the delta rule's chunk form: sequences whose last chunks have one row each.
void run_delta_rule(test::VulkanDevice& device, const OpLimits& limits) {
  const int64_t each = limits.max_tokens / limits.max_sequences, state_rows = limits.num_v_heads * limits.k_dim;
  Memory& memory = device.memory();
  const Matrix qkv(memory, limits.dtype, limits.max_tokens,
                   2 * limits.num_k_heads * limits.k_dim + limits.num_v_heads * limits.v_dim);
  const Array<float> decay(memory, limits.max_tokens * limits.num_v_heads), beta(memory, decay.size());
  Matrix states(memory, DType::kF32, limits.max_sequences * state_rows, limits.v_dim),
      out(memory, limits.dtype, limits.max_tokens, limits.num_v_heads * limits.v_dim);
  std::vector<SequenceSpan> spans;
  std::vector<float*> firsts;
  for (int64_t s = 0; s < limits.max_sequences; ++s) {
    spans.push_back({s * each, each, 0});
    firsts.push_back(reinterpret_cast<float*>(states.view().rows_from(s * state_rows, state_rows).data));
  }
  gated_delta_rule(device.stream, {.qkv = qkv.view(),
                                   .decay = decay.data(),
                                   .beta = beta.data(),
                                   .num_k_heads = limits.num_k_heads,
                                   .num_v_heads = limits.num_v_heads,
                                   .k_dim = limits.k_dim,
                                   .v_dim = limits.v_dim,
                                   .chunk = limits.chunk,
                                   .sequences = spans,
                                   .states = firsts,
                                   .held = {},
                                   .out = out.view()});
}

TEST(OpScratch, OfTheDeltaRuleIsThatOfTheMostChunks) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t num_sequences : {1, 3}) {
      const OpLimits limits{.dtype = dtype,
                            .max_tokens = num_sequences * (2 * 64 + 1),
                            .max_sequences = num_sequences,
                            .num_k_heads = 1,
                            .num_v_heads = 2,
                            .k_dim = 128,
                            .v_dim = 128,
                            .chunk = 64};
      expect_exact(*physical, limits, [&](test::VulkanDevice& device) { run_delta_rule(device, limits); });
    }
  }
}

TEST(OpScratch, OfTheDeltaRuleIsNoneWhereHeadsHaveNoChunks) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const test::VulkanDevice device(*physical);
  const OpLimits limits{
      .max_tokens = 100, .max_sequences = 1, .num_k_heads = 1, .num_v_heads = 2, .k_dim = 64, .v_dim = 64, .chunk = 64};
  EXPECT_EQ(device.backend.scratch_bytes(limits), 0);
}

TEST(OpScratch, OfAttentionIsThatOfTheLongestCache) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  constexpr int64_t kBlockTokens = 16;
  const OpLimits limits{
      .dtype = DType::kBF16, .max_tokens = 4, .max_sequences = 1, .max_keys = 320, .num_heads = 4, .head_dim = 64};
  expect_exact(*physical, limits, [&](test::VulkanDevice& device) {
    Memory& memory = device.memory();
    const Matrix q(memory, limits.dtype, limits.max_tokens, limits.num_heads * limits.head_dim);
    Matrix keys(memory, limits.dtype, limits.max_keys, limits.head_dim),
        values(memory, limits.dtype, limits.max_keys, limits.head_dim), out(memory, limits.dtype, q.rows(), q.cols());
    std::vector<int32_t> blocks;
    for (int32_t i = 0; i < limits.max_keys / kBlockTokens; ++i) blocks.push_back(i);
    const int32_t* const table = blocks.data();
    const SequenceSpan span{0, limits.max_tokens, limits.max_keys - limits.max_tokens};
    attention(device.stream, {.q = q.view(),
                              .cache = {{keys.view().data, Space::kDevice},
                                        {values.view().data, Space::kDevice},
                                        limits.dtype,
                                        1,
                                        kBlockTokens,
                                        limits.head_dim},
                              .sequences = {&span, 1},
                              .block_tables = {&table, 1},
                              .num_heads = limits.num_heads,
                              .out = out.view()});
  });
}

TEST(OpScratch, OfArgmaxIsThatOfFewRowsWhereTheyHaveMoreParts) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const OpLimits limits{.max_tokens = 9, .max_sequences = 9, .max_logit_rows = 9, .vocab_size = 5000};
  expect_exact(*physical, limits, [&](test::VulkanDevice& device) {
    const Matrix logits(device.memory(), DType::kF32, limits.max_logit_rows, limits.vocab_size);
    Array<int32_t> ids(device.memory(), limits.max_logit_rows);
    const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    for (const std::size_t count : {std::size_t{8}, rows.size()})
      argmax(device.stream, {.x = logits.view(), .rows = std::span(rows).first(count), .ids = ids.data()});
  });
}

}  // namespace
}  // namespace ferry::vulkan
