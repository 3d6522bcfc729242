#include "moe/device_token_dispatcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/moe/moe_cases.h"
#include "tests/support/vulkan_device.h"

// The dispatcher that plans on the device against the one that plans on the host, both on one device: the same bits, and the
// same counts.

namespace ferry {
namespace {

constexpr int64_t kNumLayers = 2, kNumExperts = 24, kTopK = 3, kHiddenDim = 64, kIntermediateDim = 48;

Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix m(dtype, rows, cols);
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < rows * cols; ++i) m.view().template row<T>(0)[i] = from_float<T>(normal(random));
  });
  return m;
}

ExpertBank make_bank(Matmul& matmul, DType dtype, WeightType type) {
  ExpertBank bank(kNumLayers, kNumExperts, {kHiddenDim, kIntermediateDim}, type);
  const auto pack = [&](const Matrix& weights, WeightUse use) {
    return type.is_integer() ? matmul.pack(quantize_weights(weights.view(), type), use) : matmul.pack(weights.view(), use);
  };
  for (int64_t l = 0; l < kNumLayers; ++l) {
    for (int64_t e = 0; e < kNumExperts; ++e) {
      const auto seed = static_cast<uint32_t>(l * 1000 + e);
      bank.set(l, e,
               make_expert(pack(random_matrix(dtype, 2 * kIntermediateDim, kHiddenDim, seed), WeightUse::kGated),
                           pack(random_matrix(dtype, kHiddenDim, kIntermediateDim, seed + 500), WeightUse::kPlain)));
    }
  }
  return bank;
}

std::vector<float> some_weights(std::size_t count) {
  std::vector<float> weights(count);
  for (std::size_t i = 0; i < count; ++i) weights[i] = 0.0625F * static_cast<float>(i % 13);
  return weights;
}

/// A batch whose tokens have chosen their experts, on a device.
struct Batch {
  Batch(Stream& stream, DType dtype, WeightType type, int64_t num_tokens, Skew skew)
      : topk_idx(random_topk(num_tokens, kNumExperts, kTopK, skew, 3)),
        topk_weights(some_weights(topk_idx.size())),
        device_idx(stream.memory(), std::span<const int32_t>(topk_idx)),
        device_weights(stream.memory(), std::span<const float>(topk_weights)),
        tokens(stream.memory(), dtype, num_tokens, kHiddenDim),
        codes(stream.memory(), DType::kI8, num_tokens, quantized_cols(kHiddenDim)),
        scales(stream.memory(), num_tokens),
        out(stream.memory(), dtype, num_tokens, kHiddenDim) {
    const Matrix values = random_matrix(dtype, num_tokens, kHiddenDim, 77);
    copy_rows(stream, values.view(), tokens.view());
    quantize_rows(stream, {.x = tokens.view(), .codes = codes.view(), .scales = scales.data()});
    rows = type.is_integer() ? MatmulRows{codes.view(), scales.data()} : MatmulRows{tokens.view()};
  }

  std::string run(TokenDispatcher& dispatcher, Stream& stream, int64_t layer) {
    DispatchHandle handle = dispatcher.dispatch({.layer = layer,
                                                 .tokens = rows,
                                                 .topk_idx = topk_idx,
                                                 .topk_weights = topk_weights,
                                                 .slot_weights = device_weights.data(),
                                                 .slot_experts = device_idx.data(),
                                                 .top_k = kTopK});
    dispatcher.combine(std::move(handle), out.view());
    dispatcher.end_step();
    HostRows look(stream, out.dtype(), out.rows(), out.cols());
    look.fetch(out.view());
    const ConstMatrixView seen = look.look();
    return {reinterpret_cast<const char*>(seen.row_bytes(0)),
            static_cast<std::size_t>(seen.rows * seen.cols * dtype_bytes(seen.dtype))};
  }

  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;
  Array<int32_t> device_idx;
  Array<float> device_weights;
  Matrix tokens, codes;
  Array<float> scales;
  Matrix out;
  MatmulRows rows;
};

TEST(DeviceTokenDispatcher, HasTheBitsAndTheCountsOfTheOneThatPlansOnTheHost) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical);
  device.stream.set_order(vulkan::VulkanStream::Order::kReversed);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const WeightType type : {plain_weights(dtype), WeightType{WeightFormat::kInt8, 0}}) {
      const ExpertBank bank = make_bank(device.backend.backend().matmul(), dtype, type);
      const LocalTokenDispatcher::Options options{.max_tokens = 300, .top_k = kTopK, .dtype = dtype};
      const auto on_device = make_in_process_dispatcher(bank, device.stream, options);
      ASSERT_TRUE(on_device->plans_on_device());
      LocalTokenDispatcher on_host(bank, device.stream, options);
      for (const int64_t num_tokens : {1, 3, 65, 300}) {
        for (const Skew skew : {Skew::kUniform, Skew::kAllToFirst}) {
          Batch batch(device.stream, dtype, type, num_tokens, skew);
          const int64_t layer = num_tokens % 2;
          EXPECT_TRUE(batch.run(*on_device, device.stream, layer) == batch.run(on_host, device.stream, layer))
              << num_tokens << " tokens, " << weight_type_name(type);
        }
      }
      for (int64_t layer = 0; layer < kNumLayers; ++layer) {
        const auto actual = on_device->expert_load().layer(layer), expected = on_host.expert_load().layer(layer);
        EXPECT_TRUE(std::ranges::equal(actual, expected)) << "layer " << layer;
      }
    }
  }
}

}  // namespace
}  // namespace ferry
