#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/ops.h"
#include "tests/support/vulkan_device.h"

// What ops send to the device with their dispatches.

namespace ferry::vulkan {
namespace {

constexpr int64_t kBlockTokens = 16, kHeads = 4, kKvHeads = 2, kHeadDim = 64, kBlocks = 20;

/// Caches of a layer, and rows of a step.
struct Layer {
  explicit Layer(Memory& memory, int64_t num_rows)
      : keys(memory, DType::kBF16, kBlocks * kKvHeads * kBlockTokens, kHeadDim),
        values(memory, DType::kBF16, keys.rows(), kHeadDim),
        q(memory, DType::kBF16, num_rows, kHeads * kHeadDim),
        k(memory, DType::kBF16, num_rows, kKvHeads * kHeadDim),
        out(memory, DType::kBF16, num_rows, q.cols()) {}

  void run(Stream& stream, std::span<const SequenceSpan> spans, std::span<const int32_t* const> tables) {
    const KvLayerView cache{{keys.view().data, Space::kDevice},
                            {values.view().data, Space::kDevice},
                            DType::kBF16,
                            kKvHeads,
                            kBlockTokens,
                            kHeadDim};
    kv_append(stream, {.k = k.view(), .v = k.view(), .cache = cache, .sequences = spans, .block_tables = tables});
    attention(
        stream,
        {.q = q.view(), .cache = cache, .sequences = spans, .block_tables = tables, .num_heads = kHeads, .out = out.view()});
  }

  Matrix keys, values, q, k, out;
};

TEST(OpTables, OfAttentionAreSentForTheFirstLayerAlone) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical, DType::kBF16);
  std::vector<int32_t> blocks(kBlocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  const std::vector<const int32_t*> tables = {blocks.data(), blocks.data() + kBlocks / 2};
  std::vector<SequenceSpan> spans = {{0, 1, 150}, {1, 3, 20}};
  std::vector<Layer> layers;
  for (int i = 0; i < 9; ++i) layers.emplace_back(device.memory(), 4);
  const auto sent_by = [&](Layer& layer) {
    const int64_t before = device.stream.num_uploaded_bytes();
    layer.run(device.stream, spans, tables);
    return device.stream.num_uploaded_bytes() - before;
  };
  for (int step = 0; step < 3; ++step) {
    EXPECT_GT(sent_by(layers.front()), 0);
    for (std::size_t i = 1; i < layers.size(); ++i) EXPECT_EQ(sent_by(layers[i]), 0) << "layer " << i << " of step " << step;
    device.stream.wait(device.stream.submit());
    for (SequenceSpan& span : spans) span.num_past += span.num_tokens;
  }
}

}  // namespace
}  // namespace ferry::vulkan
