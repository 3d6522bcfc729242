#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "kernels/quantize.h"
#include "runtime/base/error.h"
#include "tests/bench/bench.h"
#include "tests/support/quantized_rows.h"

// The smaller ops around the products with the widths of Qwen3.5-35B-A3B, bf16. Operations count a special function as one;
// these ops are bound by memory or by the caches.

namespace {

using ferry::ConstMatrixView;
using ferry::DType;
using ferry::Matrix;
using ferry::OpTable;
using ferry::SequenceSpan;
using ferry::Stream;
using ferry::bench::Bench;
using ferry::bench::uniform_matrix;

constexpr double kTolerance = 1e-5;  // of the largest magnitude
constexpr double kRoundings = 2;     // of a result to bf16: the convolution and its silu
constexpr int64_t kConvKernel = 4;
constexpr int64_t kTopK = 8;

struct Sizes {
  std::vector<int64_t> rows{1, 16, 512};
  int64_t hidden = 2048, conv_channels = 8192, num_experts = 256, vocab = 248320;
};
const Sizes kQuickSizes{.rows = {1, 5}, .hidden = 90, .conv_channels = 70, .num_experts = 19, .vocab = 997};
constexpr int64_t kMostSampledRows = 64;

std::vector<const OpTable*> measured_tables(const Bench& bench) {
  std::vector<const OpTable*> tables;
  for (const OpTable* table : ferry::available_op_tables()) {
    if (std::strcmp(table->name, "ref") != 0 && bench.wants(table->name)) tables.push_back(table);
  }
  return tables;
}

std::vector<float> uniform_floats(int64_t count, uint32_t seed) {
  const Matrix values = uniform_matrix(DType::kF32, 1, count, seed);
  return {values.view().row<float>(0), values.view().row<float>(0) + count};
}

std::string line_name(const char* op, int64_t rows, int64_t cols, const OpTable& table) {
  return std::string(op) + " " + std::to_string(rows) + " x " + std::to_string(cols) + " " + table.name;
}

ferry::bench::Work work(double bytes, double operations) {
  return {.bytes = bytes, .operations = operations, .dtype = DType::kF32};
}

/// By the vectors of `table`.
ferry::bench::Work of(const OpTable& table, ferry::bench::Work work) {
  work.kernels = table.name;
  return work;
}

/// An op with one matrix as its result: run(stream, table, out). `prepare` comes before the runs that are compared.
template <class Run>
void run_matrix_op(
    Bench& bench, const char* op, int64_t rows, int64_t cols, const ferry::bench::Work& counted, Run&& run,
    const std::function<void()>& prepare = [] {}) {
  Matrix expected(DType::kBF16, rows, cols), out(DType::kBF16, rows, cols);
  prepare();
  run(bench.stream(), ferry::select_op_table("ref"), expected.view());
  for (const OpTable* table : measured_tables(bench)) {
    const std::string name = line_name(op, rows, cols, *table);
    prepare();
    run(bench.stream(), *table, out.view());
    ferry::bench::require_close(expected.view(), out.view(), kTolerance, name, kRoundings);
    bench.measure(name, of(*table, counted), [&](int64_t) { run(bench.stream(), *table, out.view()); });
  }
}

void run_rms_norm(Bench& bench, int64_t rows, int64_t cols) {
  const Matrix x = uniform_matrix(DType::kBF16, rows, cols, 1);
  const std::vector<float> weight = uniform_floats(cols, 2);
  const auto elements = static_cast<double>(rows * cols);
  run_matrix_op(bench, "rms_norm", rows, cols, work(4 * elements + 4 * static_cast<double>(cols), 4 * elements),
                [&](Stream& stream, const OpTable& table, ferry::MatrixView out) {
                  table.rms_norm(stream, {.x = x.view(), .weight = weight.data(), .eps = 1e-6F, .out = out});
                });
}

/// One sequence of many tokens, or many of one.
void run_causal_conv1d(Bench& bench, int64_t num_sequences, int64_t num_tokens, int64_t channels) {
  const int64_t rows = num_sequences * num_tokens;
  const Matrix x = uniform_matrix(DType::kBF16, rows, channels, 1);
  const std::vector<float> weight = uniform_floats(channels * kConvKernel, 2);
  std::vector<Matrix> states;
  std::vector<SequenceSpan> spans;
  for (int64_t s = 0; s < num_sequences; ++s) {
    states.emplace_back(DType::kBF16, kConvKernel - 1, channels);
    spans.push_back({s * num_tokens, num_tokens, 0});
  }
  std::vector<std::byte*> pointers;
  for (Matrix& state : states) pointers.push_back(state.view().data);
  const auto elements = static_cast<double>(rows * channels), state_elements = static_cast<double>(num_sequences * channels);
  const double row_bytes = 4 * elements + 4 * static_cast<double>(kConvKernel * channels);
  const double state_bytes = 2 * static_cast<double>(kConvKernel - 1) * state_elements;
  ferry::bench::Work counted = work(row_bytes + 2 * state_bytes, (2 * static_cast<double>(kConvKernel) + 4) * elements);
  counted.rewritten_bytes = 2 * state_bytes;
  counted.working_set = row_bytes + state_bytes;
  run_matrix_op(
      bench, num_sequences > 1 ? "causal_conv1d, a token each" : "causal_conv1d", rows, channels, counted,
      [&](Stream& stream, const OpTable& table, ferry::MatrixView out) {
        table.causal_conv1d(stream, {.x = x.view(),
                                     .weight = weight.data(),
                                     .kernel = kConvKernel,
                                     .sequences = spans,
                                     .states = pointers,
                                     .out = out});
      },
      [&] {
        for (Matrix& state : states) ferry::bench::fill_uniform(state.view(), 3, 1.0F);
      });
}

void run_combine(Bench& bench, int64_t rows, int64_t cols) {
  const Matrix slots = uniform_matrix(DType::kBF16, rows * kTopK, cols, 1);
  const std::vector<float> weights = uniform_floats(rows * kTopK, 2);
  std::vector<const std::byte*> slot_rows;
  for (int64_t i = 0; i < rows * kTopK; ++i) slot_rows.push_back(slots.view().row_bytes((7 * i) % (rows * kTopK)));
  const auto elements = static_cast<double>(rows * cols);
  run_matrix_op(bench, "combine", rows, cols, work((2 * kTopK + 2) * elements, 2 * kTopK * elements),
                [&](Stream& stream, const OpTable& table, ferry::MatrixView out) {
                  table.combine(stream,
                                {.slot_rows = slot_rows, .slot_weights = weights.data(), .num_slots = kTopK, .out = out});
                });
}

void run_router_topk(Bench& bench, int64_t rows, int64_t num_experts) {
  const Matrix logits = uniform_matrix(DType::kBF16, rows, num_experts, 1, 4.0F);
  std::vector<int32_t> expected_idx(static_cast<std::size_t>(rows * kTopK)), idx(expected_idx.size());
  Matrix expected(DType::kF32, rows, kTopK), weights(DType::kF32, rows, kTopK);
  const auto run = [&](const OpTable& table, std::vector<int32_t>& to_idx, Matrix& to) {
    table.router_topk(
        bench.stream(),
        {.logits = logits.view(), .top_k = kTopK, .topk_idx = to_idx.data(), .topk_weights = to.view().row<float>(0)});
  };
  run(ferry::select_op_table("ref"), expected_idx, expected);
  const auto elements = static_cast<double>(rows * num_experts);
  for (const OpTable* table : measured_tables(bench)) {
    const std::string name = line_name("router_topk", rows, num_experts, *table);
    run(*table, idx, weights);
    if (idx != expected_idx) throw ferry::Error(ferry::ErrorCode::kInternal, name + ": other experts than the reference");
    ferry::bench::require_close(expected.view(), weights.view(), 1.0 / 128, name);
    bench.measure(name, of(*table, work(2 * elements + static_cast<double>(rows * kTopK * 8), 4 * elements)),
                  [&](int64_t) { run(*table, idx, weights); });
  }
}

void run_argmax(Bench& bench, int64_t num_rows, int64_t vocab) {
  const Matrix logits = uniform_matrix(DType::kBF16, num_rows, vocab, 1, 4.0F);
  std::vector<int32_t> rows(static_cast<std::size_t>(num_rows)), expected(rows.size()), ids(rows.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto run = [&](const OpTable& table, std::vector<int32_t>& to) {
    table.argmax(bench.stream(), {.x = logits.view(), .rows = rows, .ids = to.data()});
  };
  run(ferry::select_op_table("ref"), expected);
  const auto elements = static_cast<double>(num_rows * vocab);
  for (const OpTable* table : measured_tables(bench)) {
    const std::string name = line_name("argmax", num_rows, vocab, *table);
    run(*table, ids);
    if (ids != expected) throw ferry::Error(ferry::ErrorCode::kInternal, name + ": other ids than the reference");
    bench.measure(name, of(*table, work(2 * elements, elements)), [&](int64_t) { run(*table, ids); });
  }
}

void run_quantize_rows(Bench& bench, int64_t rows, int64_t cols) {
  const Matrix x = uniform_matrix(DType::kBF16, rows, cols, 1);
  ferry::QuantizedRows expected(rows, cols), actual(rows, cols);
  const auto run = [&](const OpTable& table, ferry::QuantizedRows& to) {
    table.quantize_rows(bench.stream(), {.x = x.view(), .codes = to.values.view(), .scales = to.scales.data()});
  };
  run(ferry::select_op_table("ref"), expected);
  const auto elements = static_cast<double>(rows * cols);
  for (const OpTable* table : measured_tables(bench)) {
    const std::string name = line_name("quantize_rows", rows, cols, *table);
    run(*table, actual);
    if (std::memcmp(expected.values.view().data, actual.values.view().data,
                    static_cast<std::size_t>(rows * ferry::quantized_cols(cols))) != 0 ||
        expected.scales != actual.scales) {
      throw ferry::Error(ferry::ErrorCode::kInternal, name + ": other codes or scales than the reference");
    }
    bench.measure(name, of(*table, work(3 * elements + 4 * static_cast<double>(rows), 3 * elements)),
                  [&](int64_t) { run(*table, actual); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return ferry::bench::run_program(argc, argv, "the smaller ops", [](Bench& bench) {
    const Sizes sizes = bench.settings().is_quick ? kQuickSizes : Sizes{};
    for (const int64_t rows : sizes.rows) {
      run_rms_norm(bench, rows, sizes.hidden);
      run_causal_conv1d(bench, 1, rows, sizes.conv_channels);
      run_router_topk(bench, rows, sizes.num_experts);
      run_combine(bench, rows, sizes.hidden);
      run_quantize_rows(bench, rows, sizes.hidden);
      run_argmax(bench, std::min(rows, kMostSampledRows), sizes.vocab);
    }
    run_causal_conv1d(bench, bench.settings().is_quick ? 3 : 16, 1, sizes.conv_channels);
  });
}
