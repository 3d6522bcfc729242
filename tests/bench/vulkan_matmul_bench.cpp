#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/bench/vulkan_bench.h"
#include "tests/bench/vulkan_matmul_data.h"

// Products with the shapes of Qwen3.5-35B-A3B on a Vulkan device. Every product is checked before it is timed: columns of some
// rows against the reference (of integer weights all bits), and rows of smaller batches against the whole, of which all bits
// must be equal. Weights come from memory: there are more copies (or experts) than a cache holds, and calls take turns.
//
//   vulkan_matmul_bench [--device I] [--plain] [--quick] [--only TEXT]
//
// --plain: without matrix units; --quick: tiny sizes; --only: shapes and formats whose line has the text. Lines say
//
//   shape format rows: us one after the other, us side by side, GB/s and TFLOP/s of the former

namespace ferry::bench {
namespace {

using vulkan::PhysicalDevice;

constexpr int64_t kCheckedCols = 40;  // of a product, against the reference
constexpr double kTolerance = 4e-5;   // of the largest magnitude, besides a rounding to bf16
constexpr int64_t kSideBySide = 8;    // results that products take in turn

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

/// One product of the device, whose first row is row `first_row` of `rows`.
void multiply(OpenBench& bench, const Rows& rows, int64_t first_row, const std::vector<int32_t>& counts,
              std::span<const PackedMatrix* const> weights, MatrixView out) {
  bench.backend.matmul().grouped_matmul(
      bench.stream,
      {.rows = rows.of_device().rows_from(first_row, out.rows), .counts = counts, .weights = weights, .out = out});
}

Matrix fetch(OpenBench& bench, ConstMatrixView device) {
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
void check_rows_alone(OpenBench& bench, const Rows& rows, const PackedMatrix* weights, int64_t first_row, int64_t num_rows,
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
void check(OpenBench& bench, const Shape& shape, const Weights& weights, const Rows& rows, const std::vector<int32_t>& counts,
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

void measure(OpenBench& bench, const Shape& shape, const Weights& weights, const Rows& rows, const std::vector<int32_t>& counts,
             const std::string& what) {
  const int64_t num_rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t num_groups = std::count_if(counts.begin(), counts.end(), [](int32_t count) { return count > 0; });
  std::vector<Matrix> outs;
  for (int64_t i = 0; i < kSideBySide; ++i) outs.emplace_back(bench.memory, DType::kBF16, num_rows, shape.out_cols());
  const auto call = [&](int64_t i, Matrix& out) {
    // Other experts each time, or another copy.
    const auto first =
        static_cast<std::size_t>(shape.num_experts > 1 ? i * 37 % shape.num_experts : i % std::ssize(weights.all));
    multiply(bench, rows, 0, counts, std::span(weights.all).subspan(first, counts.size()), out.view());
  };
  const double in_turn = time_calls(bench.stream, [&](int64_t i) { call(i, outs[0]); });
  const double side_by_side =
      time_calls(bench.stream, [&](int64_t i) { call(i, outs[static_cast<std::size_t>(i % kSideBySide)]); });
  const double operations = 2.0 * static_cast<double>(num_rows * shape.n * shape.k);
  const double bytes = static_cast<double>(num_groups * weights.packed[0]->packed_bytes()) +
                       static_cast<double>(num_rows) * static_cast<double>(shape.k + 2 * shape.out_cols());
  std::printf("%-44s %9.1f us %9.1f us %8.0f GB/s %8.2f TFLOP/s\n", what.c_str(), in_turn * 1e6, side_by_side * 1e6,
              bytes / in_turn * 1e-9, operations / in_turn * 1e-12);
  std::fflush(stdout);
}

void run_shape(OpenBench& bench, const Shape& shape, WeightType type, const std::vector<int64_t>& tokens) {
  const Weights weights(bench, shape, type);
  const Rows rows(bench, shape, type, tokens.back() * shape.top_k);
  for (const int64_t count : tokens) {
    const std::string what = std::string(shape.name) + " " + weight_type_name(type) + " " + std::to_string(count);
    const std::vector<int32_t> counts = route(shape, count);
    check(bench, shape, weights, rows, counts, what);
    measure(bench, shape, weights, rows, counts, what);
  }
}

int run(const PhysicalDevice& device, const VulkanOptions& options) {
  OpenBench bench(device, (options.is_plain ? without_matrices(device) : device).traits);
  for (const Shape& shape : options.is_quick ? kQuickShapes : kShapes) {
    for (const WeightType type : kTypes) {
      if (!options.wants(std::string(shape.name) + " " + weight_type_name(type))) continue;
      run_shape(bench, shape, type, options.is_quick ? kQuickTokens : kTokens);
    }
  }
  return 0;
}

}  // namespace

int run_vulkan_matmul_bench(int argc, char** argv) {
  return run_program(argc, argv, {.name = "vulkan_matmul_bench", .has_plain = true, .run = run});
}

}  // namespace ferry::bench

int main(int argc, char** argv) { return ferry::bench::run_vulkan_matmul_bench(argc, argv); }
