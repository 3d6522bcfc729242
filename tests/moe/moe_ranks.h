#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "moe/local_token_dispatcher.h"
#include "tests/moe/moe_cases.h"
#include "tests/support/apart_device.h"
#include "tests/support/quantized_rows.h"

// Ranks of a small mixture of experts, and batches for it: what tests of dispatchers share.

namespace ferry::test {

struct Shape {
  int64_t num_layers = 2;
  int64_t num_experts = 8;
  int64_t top_k = 4;
  int64_t hidden_dim = 24;
  int64_t intermediate_dim = 20;
  DType dtype = DType::kBF16;
  bool is_quantized = false;
  CombineMode combine = CombineMode::kExact;
  bool is_apart = false;    // computed on devices that the host cannot touch
  int32_t nan_expert = -1;  // one of whose weights is not finite

  WeightType weights() const { return is_quantized ? WeightType{WeightFormat::kInt8, 0} : plain_weights(dtype); }
  DType row_dtype() const { return is_quantized ? DType::kI8 : dtype; }
};

inline Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix m(dtype, rows, cols);
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < rows * cols; ++i) m.view().template row<T>(0)[i] = from_float<T>(normal(random));
  });
  return m;
}

/// Threads, kernels and weights of one rank. The vector kernels' product is used: it needs no OpenMP, which ThreadSanitizer
/// cannot see into.
struct RankParts {
  explicit RankParts(int num_threads, const Shape& shape = {}) : pool(num_threads), host_stream(host, pool) {
    if (!shape.is_apart) return;
    device.emplace(DType::kF32);
    device_stream.emplace(*device, pool);
  }
  Stream& stream() { return device_stream ? *device_stream : host_stream; }
  Matmul& matmul() { return stream().backend().matmul(); }

  ThreadPool pool;
  Backend host = select_backend("auto", "auto", DType::kF32);
  Stream host_stream;
  std::optional<test::ApartDevice> device;
  std::optional<test::ApartStream> device_stream;
};

inline ExpertBank make_bank(const Shape& shape, Matmul& matmul, const ExpertMap& map, int32_t rank_idx) {
  const auto local = map.experts_of(rank_idx);
  ExpertBank bank(shape.num_layers, static_cast<int64_t>(local.size()), {shape.hidden_dim, shape.intermediate_dim},
                  shape.weights());
  const auto pack = [&](const Matrix& weights, WeightUse use) {
    if (!shape.weights().is_integer()) return matmul.pack(weights.view(), use);
    return matmul.pack(quantize_weights(weights.view(), shape.weights()), use);
  };
  for (int64_t l = 0; l < shape.num_layers; ++l) {
    for (std::size_t e = 0; e < local.size(); ++e) {
      const int32_t expert = map.logical_of(local[e]).value;
      const auto seed = static_cast<uint32_t>(l * 1000 + expert);
      Matrix down = random_matrix(shape.dtype, shape.hidden_dim, shape.intermediate_dim, seed + 500);
      if (expert == shape.nan_expert)
        visit_dtype(shape.dtype, [&]<class T>() { down.view().template row<T>(1)[2] = from_float<T>(NAN); });
      bank.set(
          l, static_cast<int64_t>(e),
          make_expert(pack(random_matrix(shape.dtype, 2 * shape.intermediate_dim, shape.hidden_dim, seed), WeightUse::kGated),
                      pack(down, WeightUse::kPlain)));
    }
  }
  return bank;
}

inline std::string bytes_of(ConstMatrixView m) {
  return {reinterpret_cast<const char*>(m.data), static_cast<std::size_t>(m.rows * m.cols * dtype_bytes(m.dtype))};
}

struct Batch {
  Matrix tokens;
  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;
  QuantizedRows codes;  // of the tokens, if the experts are quantised
  int64_t top_k = 0;

  DispatchArgs at(int64_t layer) const {
    return {.layer = layer,
            .tokens = rows(),
            .topk_idx = topk_idx,
            .topk_weights = topk_weights,
            .slot_weights = topk_weights.data(),
            .top_k = top_k};
  }
  MatmulRows rows() const {
    return codes.scales.empty() ? MatmulRows{tokens.view()} : MatmulRows{codes.values.view(), codes.scales.data()};
  }
};

inline Batch make_batch(const Shape& shape, int64_t num_tokens, Skew skew) {
  Batch batch{random_matrix(shape.dtype, num_tokens, shape.hidden_dim, 77),
              random_topk(num_tokens, shape.num_experts, shape.top_k, skew, 3),
              {},
              {},
              shape.top_k};
  for (std::size_t i = 0; i < batch.topk_idx.size(); ++i)
    batch.topk_weights.push_back(round_to<bfloat16>(0.05F + 0.01F * static_cast<float>(i % 13)));
  if (shape.is_quantized) {
    batch.codes = QuantizedRows(num_tokens, shape.hidden_dim);
    RankParts parts(1);
    quantize_rows(parts.stream(),
                  {.x = batch.tokens.view(), .codes = batch.codes.values.view(), .scales = batch.codes.scales.data()});
  }
  return batch;
}

/// The bytes of what becomes of a batch, which is given to the stream's backend first.
inline std::string run(TokenDispatcher& dispatcher, Stream& stream, const Batch& batch, int64_t layer) {
  const MatmulRows rows = batch.rows();
  const int64_t num_tokens = rows.x.rows;
  DeviceRows tokens(stream, rows.x.dtype, num_tokens, rows.x.cols);
  const std::span<const float> scales = batch.codes.scales, weights = batch.topk_weights;
  const Array<float> device_scales(stream.memory(), scales), device_weights(stream.memory(), weights);
  DispatchArgs args = batch.at(layer);
  args.tokens = {tokens.take(rows.x), rows.scales ? device_scales.data() : nullptr};
  args.slot_weights = device_weights.data();
  Matrix out(stream.memory(), batch.tokens.dtype(), num_tokens, batch.tokens.cols());
  dispatcher.combine(dispatcher.dispatch(args), out.view());
  HostRows look(stream, out.dtype(), num_tokens, out.cols());
  look.fetch(out.view());
  return bytes_of(look.look());
}

inline std::string run_local(const Shape& shape, const Batch& batch, int64_t layer) {
  RankParts parts(2, shape);
  const std::vector<Rank> self = {Rank{0}};
  const ExpertBank bank = make_bank(shape, parts.matmul(), ExpertMap::contiguous(shape.num_experts, self), 0);
  LocalTokenDispatcher dispatcher(bank, parts.stream(),
                                  {.max_tokens = batch.tokens.rows(), .top_k = shape.top_k, .dtype = shape.dtype});
  return run(dispatcher, parts.stream(), batch, layer);
}

/// The values behind run_local's bytes, and the sum of magnitudes that bounds their rounding.
inline void expect_close(const Shape& shape, const std::string& fast, const std::string& exact, const std::string& what) {
  ASSERT_EQ(fast.size(), exact.size());
  visit_dtype(shape.dtype, [&]<class T>() {
    const auto* a = reinterpret_cast<const T*>(fast.data());
    const auto* b = reinterpret_cast<const T*>(exact.data());
    float largest = 0;
    for (std::size_t i = 0; i < exact.size() / sizeof(T); ++i) largest = std::max(largest, std::abs(to_float(b[i])));
    const float tolerance = (shape.dtype == DType::kF32 ? 1e-6F : 0.02F) * largest;
    for (std::size_t i = 0; i < exact.size() / sizeof(T); ++i) ASSERT_NEAR(to_float(a[i]), to_float(b[i]), tolerance) << what;
  });
}

}  // namespace ferry::test
