#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/vulkan/device_memory.h"
#include "kernels/vulkan/matmul.h"
#include "kernels/vulkan/vulkan_stream.h"
#include "runtime/base/error.h"

// Products with the shapes of Qwen3.5-35B-A3B on a Vulkan device. Every product is checked before it is timed: columns of some
// rows against the reference (of integer weights all bits), and rows of smaller batches against the whole, of which all bits must
// be equal. Weights come from memory: there are more copies (or experts) than a cache holds, and calls take turns.
//
//   vulkan_matmul_bench [--device I] [--plain] [--quick] [--only TEXT]
//
// --plain: without matrix units; --quick: tiny sizes; --only: shapes and formats whose line has the text. Lines say
//
//   shape format rows: us one after the other, us side by side, GB/s and TFLOP/s of the former

namespace {

using namespace ferry;
using vulkan::Device;
using vulkan::DeviceMemory;
using vulkan::DeviceTraits;
using vulkan::PhysicalDevice;
using vulkan::VulkanStream;

constexpr int64_t kColdBytes = int64_t{256} << 20;
constexpr int64_t kSourceMatrices = 4;  // that experts are copies of
constexpr int64_t kCheckedCols = 40;    // of a product, against the reference
constexpr double kTolerance = 4e-5;     // of the largest magnitude, besides a rounding to bf16
constexpr double kSecondsOfARun = 0.05;
constexpr int64_t kSideBySide = 8;  // results that products take in turn

struct Shape {
  const char* name;
  int64_t n, k;
  WeightUse use = WeightUse::kPlain;
  int64_t num_experts = 1;  // a token takes top_k of them
  int64_t top_k = 1;

  bool is_gated() const { return use == WeightUse::kGated; }
  int64_t out_cols() const { return is_gated() ? n / 2 : n; }
};

const std::vector<Shape> kShapes = {{"in_proj 12352x2048", 12352, 2048},
                                    {"out_proj 2048x4096", 2048, 4096},
                                    {"qkv 9216x2048", 9216, 2048},
                                    {"lm_head 248320x2048", 248320, 2048},
                                    {"gate_up 256 x 1024x2048", 1024, 2048, WeightUse::kGated, 256, 8},
                                    {"down 256 x 2048x512", 2048, 512, WeightUse::kPlain, 256, 8}};
const std::vector<int64_t> kTokens = {1, 16, 64, 512, 2048};
const std::vector<Shape> kQuickShapes = {{"quick 70x640", 70, 640}, {"quick 5 x 44x128", 44, 128, WeightUse::kGated, 5, 3}};
const std::vector<int64_t> kQuickTokens = {1, 17, 70};
const std::vector<WeightType> kTypes = {{WeightFormat::kBF16}, {WeightFormat::kInt8}, {WeightFormat::kInt4, 64}};

struct Options {
  int device = 0;
  bool is_plain = false, is_quick = false;
  std::string only;
};

/// Numbers without pattern, the same for the same index and seed.
uint32_t scrambled(int64_t index, uint32_t seed) {
  uint64_t x = (static_cast<uint64_t>(index) + (uint64_t{seed} << 40)) * 0x9e3779b97f4a7c15U;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9U;
  return static_cast<uint32_t>(x >> 32);
}

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kInternal, what); }

/// The open device and everything on it.
struct Bench {
  Bench(const PhysicalDevice& physical, const DeviceTraits& traits)
      : device(physical),
        memory(device),
        backend("vulkan", {}, vulkan::make_vulkan_matmul(memory, traits, DType::kBF16), memory),
        pool(static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))),
        stream(backend, pool) {}

  Device device;
  DeviceMemory memory;
  Backend backend;
  ThreadPool pool;
  VulkanStream stream;
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
Matrix random_values(Bench& bench, int64_t rows, int64_t cols, uint32_t seed) {
  Matrix matrix(DType::kBF16, rows, cols);
  bench.pool.parallel_for(rows, [&](int64_t r, int) {
    auto* row = matrix.view().row<bfloat16>(r);
    for (int64_t c = 0; c < cols; ++c)
      row[c] = from_float<bfloat16>(static_cast<float>(static_cast<int32_t>(scrambled(r * cols + c, seed))) * 0x1p-31F);
  });
  return matrix;
}

QuantizedMatrix random_codes(Bench& bench, WeightType type, int64_t n, int64_t k, uint32_t seed) {
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

Source make_source(Bench& bench, const Shape& shape, WeightType type, uint32_t seed) {
  if (!type.is_integer()) return {.values = random_values(bench, shape.n, shape.k, seed)};
  return {.codes = random_codes(bench, type, shape.n, shape.k, seed)};
}

/// Rows `picked` of a matrix.
Source slice(const Source& source, const std::vector<int64_t>& picked) {
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
  Rows(Bench& bench, const Shape& shape, WeightType type, int64_t count) {
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
  Weights(Bench& bench, const Shape& shape, WeightType type) {
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
  }
  const Source& source_of(int64_t expert) const { return sources[static_cast<std::size_t>(expert) % sources.size()]; }

  std::vector<Source> sources;
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::vector<const PackedMatrix*> all;
};

/// How many of `tokens` tokens take each expert: top_k different ones each.
std::vector<int32_t> route(const Shape& shape, int64_t tokens) {
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

/// One product of the device, whose first row is row `first_row` of `rows`.
void multiply(Bench& bench, const Rows& rows, int64_t first_row, const std::vector<int32_t>& counts,
              std::span<const PackedMatrix* const> weights, MatrixView out) {
  bench.backend.matmul().grouped_matmul(
      bench.stream,
      {.rows = rows.of_device().rows_from(first_row, out.rows), .counts = counts, .weights = weights, .out = out});
}

Matrix fetch(Bench& bench, ConstMatrixView device) {
  Matrix host(device.dtype, device.rows, device.cols);
  copy_rows(bench.stream, device, host.view());
  bench.stream.wait(bench.stream.submit());
  return host;
}

void check_element(const Source& source, float expected, float got, float largest, const std::string& what) {
  const bool is_right =
      source.is_plain() ? std::abs(expected - got) <= kTolerance * largest + std::abs(expected) / 128 : expected == got;
  if (!is_right) fail(what + ": " + std::to_string(got) + " instead of " + std::to_string(expected));
}

/// Compares some columns of row `row` of the call with the reference. SwiGLU of integers may differ by a rounding.
void check_row(const Shape& shape, const Source& source, const Rows& rows, int64_t row, ConstMatrixView out,
               const std::string& what) {
  const auto ref = make_ref_matmul();
  std::vector<int64_t> cols, picked;
  for (int64_t i = 0; i < kCheckedCols; ++i) cols.push_back(scrambled(i + row, 9) % shape.out_cols());
  picked = cols;
  if (shape.is_gated()) {
    for (const int64_t col : cols) picked.push_back(shape.out_cols() + col);
  }
  const auto weights = slice(source, picked).pack(*ref, shape.use, nullptr);
  Matrix expected(DType::kBF16, 1, kCheckedCols);
  ThreadPool pool(1);
  const Backend backend("ref", {}, nullptr);
  Stream stream(backend, pool);
  ref->matmul(stream, rows.of_host().rows_from(row, 1), *weights, expected.view());
  const bfloat16 *e = expected.view().row<bfloat16>(0), *g = out.row<bfloat16>(row);
  float largest = 0;
  for (int64_t i = 0; i < kCheckedCols; ++i) largest = std::max(largest, std::abs(to_float(e[i])));
  for (int64_t i = 0; i < kCheckedCols; ++i) {
    const float expected_value = to_float(e[i]), got = to_float(g[cols[static_cast<std::size_t>(i)]]);
    const bool is_rounding = shape.is_gated() && std::abs(expected_value - got) <= std::abs(expected_value) / 64;
    if (!is_rounding) check_element(source, expected_value, got, largest, what + " row " + std::to_string(row));
  }
}

void check_same_bits(ConstMatrixView expected, ConstMatrixView got, const std::string& what) {
  for (int64_t r = 0; r < got.rows; ++r) {
    const auto bytes = static_cast<std::size_t>(got.cols * dtype_bytes(got.dtype));
    if (std::memcmp(expected.row_bytes(r), got.row_bytes(r), bytes) != 0)
      fail(what + ": row " + std::to_string(r) + " has other bits");
  }
}

/// A group's rows of `whole` must come out again in products of that group alone.
void check_rows_alone(Bench& bench, const Rows& rows, const PackedMatrix* weights, int64_t first_row, int64_t num_rows,
                      ConstMatrixView whole, const std::string& what) {
  for (const int64_t count : {1, 2, 3, 5, 8, 16, 17, 32, 33, 64, 65, 100, 129, 300}) {
    if (count > num_rows) return;
    const int64_t first = first_row + count * 7 % (num_rows - count + 1);
    Matrix out(bench.memory, DType::kBF16, count, whole.cols);
    multiply(bench, rows, first, {static_cast<int32_t>(count)}, {&weights, 1}, out.view());
    check_same_bits(whole.rows_from(first, count), fetch(bench, out.view()).view(),
                    what + " alone in " + std::to_string(count) + " rows");
  }
}

/// The product of all `counts` in every respect.
void check(Bench& bench, const Shape& shape, const Weights& weights, const Rows& rows, const std::vector<int32_t>& counts,
           const std::string& what) {
  const int64_t num_rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  Matrix out(bench.memory, DType::kBF16, num_rows, shape.out_cols());
  multiply(bench, rows, 0, counts, std::span(weights.all).first(counts.size()), out.view());
  const Matrix whole = fetch(bench, out.view());
  int64_t first = 0, num_checked = 0;
  for (std::size_t g = 0; g < counts.size(); first += counts[g++]) {
    if (counts[g] == 0 || (g % 29 != 0 && num_checked > 2)) continue;
    ++num_checked;
    const Source& source = weights.source_of(static_cast<int64_t>(g));
    for (const int64_t row : {int64_t{0}, int64_t{counts[g] / 2}, int64_t{counts[g] - 1}})
      check_row(shape, source, rows, first + row, whole.view(), what);
    check_rows_alone(bench, rows, weights.all[g], first, counts[g], whole.view(), what);
  }
}

/// Seconds of one of many calls.
double time_calls(Bench& bench, const std::function<void(int64_t)>& call) {
  const auto run = [&](int64_t first, int64_t count) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = first; i < first + count; ++i) call(i);
    bench.stream.wait(bench.stream.submit());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  run(0, 1);
  const double guess = run(1, 4) / 4;
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(kSecondsOfARun / guess), 4, 2000);
  double best = run(0, count);
  for (int i = 0; i < 2; ++i) best = std::min(best, run(0, count));
  return best / static_cast<double>(count);
}

void measure(Bench& bench, const Shape& shape, const Weights& weights, const Rows& rows, const std::vector<int32_t>& counts,
             const std::string& what) {
  const int64_t num_rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t num_groups = std::count_if(counts.begin(), counts.end(), [](int32_t count) { return count > 0; });
  std::vector<Matrix> outs;
  for (int64_t i = 0; i < kSideBySide; ++i) outs.emplace_back(bench.memory, DType::kBF16, num_rows, shape.out_cols());
  const auto call = [&](int64_t i, Matrix& out) {
    // Experts are all there in each call; copies take turns.
    const std::size_t first = shape.num_experts > 1 ? 0 : static_cast<std::size_t>(i) % weights.all.size();
    multiply(bench, rows, 0, counts, std::span(weights.all).subspan(first, counts.size()), out.view());
  };
  const double in_turn = time_calls(bench, [&](int64_t i) { call(i, outs[0]); });
  const double side_by_side = time_calls(bench, [&](int64_t i) { call(i, outs[static_cast<std::size_t>(i % kSideBySide)]); });
  const double operations = 2.0 * static_cast<double>(num_rows * shape.n * shape.k);
  const double bytes = static_cast<double>(num_groups * weights.packed[0]->packed_bytes()) +
                       static_cast<double>(num_rows) * static_cast<double>(shape.k + 2 * shape.out_cols());
  std::printf("%-44s %9.1f us %9.1f us %8.0f GB/s %8.2f TFLOP/s\n", what.c_str(), in_turn * 1e6, side_by_side * 1e6,
              bytes / in_turn * 1e-9, operations / in_turn * 1e-12);
  std::fflush(stdout);
}

void run_shape(Bench& bench, const Shape& shape, WeightType type, const std::vector<int64_t>& tokens) {
  const Weights weights(bench, shape, type);
  const Rows rows(bench, shape, type, tokens.back() * shape.top_k);
  for (const int64_t count : tokens) {
    const std::string what = std::string(shape.name) + " " + weight_type_name(type) + " " + std::to_string(count);
    const std::vector<int32_t> counts = route(shape, count);
    check(bench, shape, weights, rows, counts, what);
    measure(bench, shape, weights, rows, counts, what);
  }
}

Options parse(std::span<char*> arguments) {
  Options options;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (argument == "--plain") {
      options.is_plain = true;
    } else if (argument == "--quick") {
      options.is_quick = true;
    } else if (argument == "--device" && has_value) {
      options.device = std::stoi(arguments[++i]);
    } else if (argument == "--only" && has_value) {
      options.only = arguments[++i];
    } else {
      throw_invalid("usage: vulkan_matmul_bench [--device I] [--plain] [--quick] [--only TEXT]");
    }
  }
  return options;
}

int run(const Options& options) {
  const std::vector<PhysicalDevice> devices = vulkan::find_physical_devices();
  if (options.device < 0 || options.device >= static_cast<int>(devices.size())) {
    std::printf("no Vulkan device %d\n", options.device);
    return options.is_quick ? 0 : 1;  // a machine without one passes the test
  }
  const PhysicalDevice& device = devices[static_cast<std::size_t>(options.device)];
  if (!device.info.refusal.empty()) throw_invalid(device.info.name + ": " + device.info.refusal);
  std::printf("%s, %s:", device.info.name.c_str(), device.info.driver.c_str());
  for (const std::string& ability : device.info.abilities) std::printf(" %s;", ability.c_str());
  std::printf("\n");
  DeviceTraits traits = device.traits;
  if (options.is_plain) traits.bf16 = traits.f16 = traits.int8 = {};
  Bench bench(device, traits);
  for (const Shape& shape : options.is_quick ? kQuickShapes : kShapes) {
    for (const WeightType type : kTypes) {
      const std::string name = std::string(shape.name) + " " + weight_type_name(type);
      if (name.find(options.only) == std::string::npos) continue;
      run_shape(bench, shape, type, options.is_quick ? kQuickTokens : kTokens);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(std::span(argv, static_cast<std::size_t>(argc))));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
