#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/vulkan/device_memory.h"
#include "kernels/vulkan/matmul.h"
#include "kernels/vulkan/vulkan_stream.h"

// What vulkan_matmul_bench multiplies: random weights and rows, on the host and on the device.

namespace ferry::bench {

inline constexpr int64_t kColdBytes = int64_t{256} << 20;  // of weights that no cache holds
inline constexpr int64_t kSourceMatrices = 4;              // that experts are copies of

struct Shape {
  const char* name;
  int64_t n, k;
  WeightUse use = WeightUse::kPlain;
  int64_t num_experts = 1;  // a token takes top_k of them
  int64_t top_k = 1;

  bool is_gated() const { return use == WeightUse::kGated; }
  int64_t out_cols() const { return is_gated() ? n / 2 : n; }
};

/// Numbers without pattern, the same for the same index and seed.
inline uint32_t scrambled(int64_t index, uint32_t seed) {
  uint64_t x = (static_cast<uint64_t>(index) + (uint64_t{seed} << 40)) * 0x9e3779b97f4a7c15U;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9U;
  return static_cast<uint32_t>(x >> 32);
}

/// The open device and everything on it.
struct OpenBench {
  OpenBench(const vulkan::PhysicalDevice& physical, const vulkan::DeviceTraits& traits)
      : device(physical),
        memory(device),
        backend("vulkan", {}, vulkan::make_vulkan_matmul(memory, traits, DType::kBF16), memory),
        pool(static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))),
        stream(backend, pool) {}

  vulkan::Device device;
  vulkan::DeviceMemory memory;
  Backend backend;
  ThreadPool pool;
  vulkan::VulkanStream stream;
};

/// A matrix of the host, plain or in codes.
struct Source {
  Matrix values;
  QuantizedMatrix codes;

  bool is_plain() const { return codes.codes.empty(); }
  std::unique_ptr<PackedMatrix> pack(Matmul& matmul, WeightUse use, ThreadPool* pool) const {
    return is_plain() ? matmul.pack(values.view(), use, pool) : matmul.pack(codes, use, pool);
  }
};

/// Uniform bf16 in [-1, 1).
inline Matrix random_values(OpenBench& bench, int64_t rows, int64_t cols, uint32_t seed) {
  Matrix matrix(DType::kBF16, rows, cols);
  bench.pool.parallel_for(rows, [&](int64_t r, int) {
    auto* row = matrix.view().row<bfloat16>(r);
    for (int64_t c = 0; c < cols; ++c)
      row[c] = from_float<bfloat16>(static_cast<float>(static_cast<int32_t>(scrambled(r * cols + c, seed))) * 0x1p-31F);
  });
  return matrix;
}

inline QuantizedMatrix random_codes(OpenBench& bench, WeightType type, int64_t n, int64_t k, uint32_t seed) {
  QuantizedMatrix w{.type = type, .n = n, .k = k, .group = type.group_size == 0 ? k : type.group_size};
  const bool is_int4 = type.format == WeightFormat::kInt4;
  w.codes.resize(static_cast<std::size_t>(n * k));
  bench.pool.parallel_for(n, [&](int64_t r, int) {
    for (int64_t i = r * k; i < (r + 1) * k; ++i) {
      const uint32_t bits = scrambled(i, seed);
      w.codes[static_cast<std::size_t>(i)] = static_cast<uint8_t>(is_int4 ? bits % 16 : 1 + bits % 255);
    }
  });
  for (int64_t i = 0; i < n * w.num_groups(); ++i) {
    w.scales.push_back(0x1p-8F * (1 + static_cast<float>(scrambled(i, seed + 1) % 16) / 16));
    w.zero_points.push_back(is_int4 ? static_cast<uint8_t>(scrambled(i, seed + 2) % 16) : 128);
  }
  return w;
}

inline Source make_source(OpenBench& bench, const Shape& shape, WeightType type, uint32_t seed) {
  if (!type.is_integer()) return {.values = random_values(bench, shape.n, shape.k, seed)};
  return {.codes = random_codes(bench, type, shape.n, shape.k, seed)};
}

/// Rows `picked` of a matrix.
inline Source slice(const Source& source, const std::vector<int64_t>& picked) {
  Source part;
  if (source.is_plain()) {
    const ConstMatrixView from = source.values.view();
    part.values = Matrix(from.dtype, std::ssize(picked), from.cols);
    for (std::size_t i = 0; i < picked.size(); ++i)
      std::memcpy(part.values.view().row_bytes(static_cast<int64_t>(i)), from.row_bytes(picked[i]),
                  static_cast<std::size_t>(from.cols * dtype_bytes(from.dtype)));
    return part;
  }
  const QuantizedMatrix& from = source.codes;
  part.codes = {.type = from.type, .n = std::ssize(picked), .k = from.k, .group = from.group};
  const auto append = [](auto& to, const auto& all, int64_t row, int64_t width) {
    to.insert(to.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  };
  for (const int64_t row : picked) {
    append(part.codes.codes, from.codes, row, from.k);
    append(part.codes.scales, from.scales, row, from.num_groups());
    append(part.codes.zero_points, from.zero_points, row, from.num_groups());
  }
  return part;
}

/// Rows to multiply, of the host and of the device.
struct Rows {
  Rows(OpenBench& bench, const Shape& shape, WeightType type, int64_t count) {
    if (!type.is_integer()) {
      host = random_values(bench, count, shape.k, 77);
    } else {
      host = Matrix(DType::kI8, count, quantized_cols(shape.k));
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t c = 0; c < shape.k; ++c)
          host.view().row<int8_t>(r)[c] = static_cast<int8_t>(static_cast<int32_t>(scrambled(r * shape.k + c, 78) % 255) - 127);
        host_scales.push_back(0x1p-7F * (1 + static_cast<float>(r % 7) / 8));
      }
      scales = Array<float>(bench.memory, std::span<const float>(host_scales));
    }
    const ConstMatrixView view = host.view();
    const auto bytes = static_cast<std::size_t>(view.rows * view.cols * dtype_bytes(view.dtype));
    on_device = Matrix(bench.memory, view.dtype, view.rows, view.cols);
    bench.memory.fill({on_device.view().data, Space::kDevice}, {view.data, bytes});
  }
  MatmulRows of_host() const { return {host.view(), host_scales.empty() ? nullptr : host_scales.data()}; }
  MatmulRows of_device() const {
    return {on_device.view(), scales.empty() ? Address<const float>(nullptr) : Address<const float>(scales.data())};
  }

  Matrix host, on_device;
  std::vector<float> host_scales;
  Array<float> scales;
};

/// Weights of one shape on the device: experts, or copies that calls take in turn.
struct Weights {
  Weights(OpenBench& bench, const Shape& shape, WeightType type) {
    const int64_t num_sources = std::min(shape.num_experts, kSourceMatrices);
    for (int64_t i = 0; i < num_sources; ++i)
      sources.push_back(make_source(bench, shape, type, static_cast<uint32_t>(100 + 3 * i)));
    int64_t bytes = 0;
    for (int64_t i = 0; i < shape.num_experts || (shape.num_experts == 1 && bytes < kColdBytes); ++i) {
      const Source& source = sources[static_cast<std::size_t>(i % num_sources)];
      packed.push_back(source.pack(bench.backend.matmul(), shape.use, &bench.pool));
      bytes += packed.back()->packed_bytes();
      all.push_back(packed.back().get());
    }
    if (shape.num_experts > 1) all.insert(all.end(), all.begin(), all.begin() + shape.num_experts);
  }
  const Source& source_of(int64_t expert) const { return sources[static_cast<std::size_t>(expert) % sources.size()]; }

  std::vector<Source> sources;
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::vector<const PackedMatrix*> all;  // experts twice, so that they can be counted from any of them
};

/// How many of `tokens` tokens take each expert: top_k different ones each.
inline std::vector<int32_t> route(const Shape& shape, int64_t tokens) {
  std::vector<int32_t> counts(static_cast<std::size_t>(shape.num_experts));
  if (shape.num_experts == 1) return {static_cast<int32_t>(tokens)};
  std::vector<int64_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < shape.top_k; ++j) {
      const int64_t other = j + scrambled(t * shape.top_k + j, 5) % (shape.num_experts - j);
      std::swap(order[static_cast<std::size_t>(j)], order[static_cast<std::size_t>(other)]);
      ++counts[static_cast<std::size_t>(order[static_cast<std::size_t>(j)])];
    }
  }
  return counts;
}

}  // namespace ferry::bench
