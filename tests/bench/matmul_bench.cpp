#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/e4m3.h"
#include "kernels/matmul.h"
#include "kernels/op_table.h"
#include "tests/bench/bench.h"
#include "tests/support/quantized_rows.h"
#include "tests/support/test_stream.h"

// Matrix products with the shapes of Qwen3.5-35B-A3B, every format of weights and every implementation that runs here. Before a
// product is timed, some of its rows are compared with the reference's; of integer weights all bits must be equal.
//
// Weights come from memory, as in a model: there are more copies (or experts) than a cache holds, and calls take turns.

namespace {

using ferry::ConstMatrixView;
using ferry::DType;
using ferry::Matmul;
using ferry::MatmulRows;
using ferry::Matrix;
using ferry::PackedMatrix;
using ferry::QuantizedMatrix;
using ferry::WeightFormat;
using ferry::WeightType;
using ferry::WeightUse;
using ferry::bench::Bench;

constexpr int64_t kColdBytes = int64_t{512} << 20;
constexpr double kFloatTolerance = 5e-6;  // of the largest magnitude: sums in another order

struct Shape {
  const char* name;
  int64_t n, k;
  WeightUse use = WeightUse::kPlain;
  int64_t num_experts = 1;  // a token takes top_k of them in turn
  int64_t top_k = 1;

  int64_t out_cols() const { return use == WeightUse::kGated ? n / 2 : n; }
};

const std::vector<Shape> kShapes = {{"in_proj_qkv", 8192, 2048},
                                    {"out_proj", 2048, 4096},
                                    {"gate_up of 256 experts", 1024, 2048, WeightUse::kGated, 256, 8},
                                    {"down of 256 experts", 2048, 512, WeightUse::kPlain, 256, 8},
                                    {"lm_head", 65536, 2048}};
const std::vector<int64_t> kTokens = {1, 16, 64, 96, 128, 256, 512, 2048};
const std::vector<Shape> kQuickShapes = {{"quick", 70, 384}, {"quick experts", 44, 128, WeightUse::kGated, 5, 3}};
const std::vector<int64_t> kQuickTokens = {1, 17};

const std::vector<WeightType> kTypes = {{WeightFormat::kF32},
                                        {WeightFormat::kBF16},
                                        {WeightFormat::kInt8},
                                        {WeightFormat::kInt4, 64},
                                        {WeightFormat::kInt4, 128, true},
                                        {WeightFormat::kE4M3, 128}};

bool is_plain(WeightType type) { return type.format == WeightFormat::kF32 || type.format == WeightFormat::kBF16; }

uint8_t random_code(WeightFormat format, uint8_t bits) {
  if (format == WeightFormat::kInt8) return std::max<uint8_t>(bits, 1);
  if (format == WeightFormat::kInt4) return bits & 15U;
  return (bits & 0x7F) == ferry::kE4M3NaN ? 0 : bits;
}

/// One matrix in its unpacked form.
struct Weights {
  Weights(const Shape& shape, WeightType type) {
    if (is_plain(type)) {
      plain = ferry::bench::uniform_matrix(type.format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16, shape.n, shape.k, 1,
                                           0.05F);
      return;
    }
    quantized = {
        .type = type, .n = shape.n, .k = shape.k, .group = type.format == WeightFormat::kInt8 ? shape.k : type.group_size};
    std::minstd_rand generator(2);
    quantized.codes.resize(static_cast<std::size_t>(shape.n * shape.k));
    for (uint8_t& code : quantized.codes) code = random_code(type.format, static_cast<uint8_t>(generator() >> 8U));
    const auto num_groups = static_cast<std::size_t>(shape.n * quantized.num_groups());
    for (std::size_t g = 0; g < num_groups; ++g) {
      quantized.scales.push_back(static_cast<float>(16 + g % 16) / 16384.0F);  // 4 bits of mantissa
      quantized.zero_points.push_back(type.format == WeightFormat::kInt8 ? 128 : static_cast<uint8_t>(6 + g % 4));
    }
  }
  std::unique_ptr<PackedMatrix> pack(Matmul& backend, WeightUse use) const {
    return plain.rows() > 0 ? backend.pack(plain.view(), use) : backend.pack(quantized, use);
  }

  Matrix plain;
  QuantizedMatrix quantized;
};

double weight_bytes(const Shape& shape, WeightType type) {
  const auto n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  switch (type.format) {
    case WeightFormat::kF32: return n * k * 4;
    case WeightFormat::kBF16: return n * k * 2;
    case WeightFormat::kInt8: return n * k + n * 4;
    case WeightFormat::kInt4: return n * k / 2 + n * k / type.group_size * (type.is_wide ? 4 : 2);
    case WeightFormat::kE4M3: return n * k + n * k / type.group_size * 4;
  }
  return 0;
}

/// Rows of a call, with codes for integer weights, and how they are shared out over experts.
struct Operands {
  Operands(const Shape& shape, WeightType type, int64_t tokens)
      : num_rows(tokens * shape.top_k), num_groups(std::min(num_rows, shape.num_experts)) {
    dtype = type.format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
    x = ferry::bench::uniform_matrix(dtype, num_rows, shape.k, 3);
    if (type.is_integer()) {
      codes = ferry::QuantizedRows(num_rows, shape.k);
      ferry::test::TestStream stream(1);
      ferry::available_op_tables().front()->quantize_rows(
          stream, {.x = x.view(), .codes = codes.values.view(), .scales = codes.scales.data()});
    }
    out = Matrix(dtype, num_rows, shape.out_cols());
    for (int64_t g = 0; g < num_groups; ++g)
      counts.push_back(static_cast<int32_t>(num_rows * (g + 1) / num_groups - num_rows * g / num_groups));
  }
  MatmulRows rows() const {
    return codes.scales.empty() ? MatmulRows{x.view()} : MatmulRows{codes.values.view(), codes.scales.data()};
  }
  /// The first row, the last, and one between.
  std::vector<int64_t> probes() const {
    std::vector<int64_t> list = {0, num_rows / 2, num_rows - 1};
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }
  /// Calls come back to the weights of all `num_copies`.
  ferry::bench::Work work(const Shape& shape, WeightType type, std::size_t num_copies, const char* backend) const {
    const ConstMatrixView in = rows().x;
    const double row_bytes = static_cast<double>(in.cols * dtype_bytes(in.dtype) + out.cols() * dtype_bytes(dtype));
    const double all_row_bytes = static_cast<double>(num_rows) * row_bytes;
    return {.bytes = static_cast<double>(num_groups) * weight_bytes(shape, type) + all_row_bytes,
            .working_set = static_cast<double>(num_copies) * weight_bytes(shape, type) + all_row_bytes,
            .operations = 2.0 * static_cast<double>(num_rows) * static_cast<double>(shape.n) * static_cast<double>(shape.k),
            .dtype = type.is_integer() ? DType::kI8 : dtype,
            .kernels = backend};
  }

  int64_t num_rows, num_groups;
  DType dtype;
  Matrix x, out;
  ferry::QuantizedRows codes;
  std::vector<int32_t> counts;  // [num_groups]
};

/// The reference's results for the probed rows.
struct Reference {
  Reference(const Shape& shape, const Weights& weights, const Operands& operands) {
    const auto backend = ferry::make_ref_matmul();
    const auto packed = weights.pack(*backend, shape.use);
    ferry::test::TestStream stream(1);
    for (const int64_t r : operands.probes()) {
      expected.emplace_back(operands.dtype, 1, shape.out_cols());
      backend->matmul(stream, operands.rows().rows_from(r, 1), *packed, expected.back().view());
    }
  }
  void verify(const Operands& operands, const Shape& shape, WeightType type, const std::string& what) const {
    const double roundings = shape.use == WeightUse::kGated ? 4 : 1;  // gate, its silu, up and their product
    const std::vector<int64_t> rows = operands.probes();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string row = what + ", row " + std::to_string(rows[i]);
      const ConstMatrixView actual = static_cast<const Matrix&>(operands.out).view().rows_from(rows[i], 1);
      if (type.is_integer()) {
        ferry::bench::require_same_bits(expected[i].view(), actual, row);
      } else {
        ferry::bench::require_close(expected[i].view(), actual, kFloatTolerance, row, roundings);
      }
    }
  }

  std::vector<Matrix> expected;  // a row each
};

/// Packed copies, of which a call takes the next ones.
std::vector<std::unique_ptr<PackedMatrix>> pack_copies(Bench& bench, Matmul& backend, const Shape& shape, WeightType type,
                                                       const Weights& weights) {
  int64_t copies = shape.num_experts;
  if (copies == 1 && !bench.settings().is_quick) {
    copies = std::max<int64_t>(1, kColdBytes / static_cast<int64_t>(weight_bytes(shape, type)));
  }
  std::vector<std::unique_ptr<PackedMatrix>> packed(static_cast<std::size_t>(copies));
  bench.pool().parallel_for(copies,
                            [&](int64_t i, int) { packed[static_cast<std::size_t>(i)] = weights.pack(backend, shape.use); });
  return packed;
}

std::string line_name(const Shape& shape, WeightType type, const std::string& backend, int64_t tokens) {
  return std::string(shape.name) + " " + weight_type_name(type) + " " + backend + " tokens " + std::to_string(tokens);
}

void run_backend(Bench& bench, Matmul& backend, const Shape& shape, WeightType type, const Weights& weights,
                 std::vector<Operands>& operands, const std::vector<Reference>& references) {
  const auto packed = pack_copies(bench, backend, shape, type, weights);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Operands& o = operands[i];
    std::vector<const PackedMatrix*> chosen(o.counts.size());
    const auto call = [&](int64_t turn) {
      for (std::size_t g = 0; g < chosen.size(); ++g)
        chosen[g] = packed[(static_cast<std::size_t>(turn) * chosen.size() + g) % packed.size()].get();
      backend.grouped_matmul(bench.stream(), {.rows = o.rows(), .counts = o.counts, .weights = chosen, .out = o.out.view()});
    };
    const std::string name = line_name(shape, type, backend.name(), o.num_rows / shape.top_k);
    if (!bench.wants_line(name)) continue;
    call(0);
    references[i].verify(o, shape, type, name);
    bench.measure(name, o.work(shape, type, packed.size(), backend.name()), call);
  }
}

std::vector<std::unique_ptr<Matmul>> make_backends(const Bench& bench, WeightType type) {
  std::vector<std::unique_ptr<Matmul>> backends;
  for (const std::string& name : ferry::cpu_matmul_names()) {
    if (bench.wants(name)) backends.push_back(ferry::make_cpu_matmul(name));
  }
  if (is_plain(type) && bench.wants("onednn")) {
    auto onednn = ferry::make_onednn_matmul(type.format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16);
    if (onednn != nullptr) backends.push_back(std::move(onednn));
  }
  return backends;
}

void run_shape(Bench& bench, const Shape& shape, WeightType type) {
  const auto backends = make_backends(bench, type);
  const std::vector<int64_t>& tokens = bench.settings().is_quick ? kQuickTokens : kTokens;
  const auto is_wanted = [&](const auto& backend) {
    return std::any_of(tokens.begin(), tokens.end(),
                       [&](int64_t t) { return bench.wants_line(line_name(shape, type, backend->name(), t)); });
  };
  if (std::none_of(backends.begin(), backends.end(), is_wanted)) return;
  const Weights weights(shape, type);
  std::vector<Operands> operands;
  std::vector<Reference> references;
  for (const int64_t t : tokens) {
    operands.emplace_back(shape, type, t);
    references.emplace_back(shape, weights, operands.back());
  }
  for (const auto& backend : backends) {
    if (is_wanted(backend)) run_backend(bench, *backend, shape, type, weights, operands, references);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return ferry::bench::run_program(argc, argv, "matrix products: own kernels and oneDNN", [](Bench& bench) {
    for (const WeightType type : kTypes) {
      for (const Shape& shape : bench.settings().is_quick ? kQuickShapes : kShapes) run_shape(bench, shape, type);
    }
  });
}
