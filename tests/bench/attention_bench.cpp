#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "runtime/base/error.h"
#include "tests/bench/bench.h"
#include "tests/support/rounded_attention.h"

// Attention over the paged cache with the heads of Qwen3.5-35B-A3B, bf16, and over the same cache as codes ("... int8"), which
// must have the bits of attention over what they stand for. Bytes are the rows and each key and value read once; operations are
// the products q k and p v of the pairs that the causal mask leaves.

namespace {

using ferry::DType;
using ferry::Matrix;
using ferry::OpTable;
using ferry::SequenceSpan;
using ferry::bench::Bench;

constexpr int64_t kBlockTokens = 32;
constexpr int64_t kVerifiedRows = 3;  // the last of every sequence
constexpr double kTolerance = 1e-3;   // of the largest magnitude

struct Shape {
  const char* name;
  int64_t num_sequences, num_tokens, num_past;
  int64_t num_heads = 16, num_kv_heads = 2, head_dim = 256;
};

const std::vector<Shape> kShapes = {{"prefill 512", 1, 512, 0},
                                    {"prefill 2048", 1, 2048, 0},
                                    {"prefill 2048, 6144 past", 1, 2048, 6144},
                                    {"prefill 2048, 30720 past", 1, 2048, 30720},
                                    {"decode, 2048 past, batch 1", 1, 1, 2048},
                                    {"decode, 2048 past, batch 16", 16, 1, 2048},
                                    {"decode, 8192 past, batch 1", 1, 1, 8192},
                                    {"decode, 8192 past, batch 16", 16, 1, 8192},
                                    {"decode, 32768 past, batch 1", 1, 1, 32768},
                                    {"decode, 32768 past, batch 16", 16, 1, 32768},
                                    {"draft of 3, 8192 past", 1, 4, 8192},
                                    {"draft of 7, 8192 past", 1, 8, 8192},
                                    {"draft of 15, 8192 past", 1, 16, 8192}};
const std::vector<Shape> kQuickShapes = {{"quick prefill", 1, 45, 0, 4, 2, 40}, {"quick decode", 3, 1, 50, 4, 1, 24}};

class Scene {
 public:
  Scene(const Shape& shape, ferry::Stream& stream)
      : shape_(shape),
        blocks_each_((shape.num_past + shape.num_tokens + kBlockTokens - 1) / kBlockTokens),
        queries_(ferry::bench::uniform_matrix(DType::kBF16, shape.num_sequences * shape.num_tokens,
                                              shape.num_heads * shape.head_dim, 1)),
        keys_(make_cache(2)),
        values_(make_cache(3)),
        key_codes_(encode(stream, keys_)),
        value_codes_(encode(stream, values_)) {
    block_ids_.resize(static_cast<std::size_t>(shape.num_sequences * blocks_each_));
    std::iota(block_ids_.rbegin(), block_ids_.rend(), 0);
    for (int64_t s = 0; s < shape.num_sequences; ++s) {
      tables_.push_back(block_ids_.data() + s * blocks_each_);
      spans_.push_back({s * shape.num_tokens, shape.num_tokens, shape.num_past});
    }
  }

  const char* name() const { return shape_.name; }
  const std::vector<SequenceSpan>& spans() const { return spans_; }
  /// The rows that are compared: those of the last tokens, whose past is what comes before.
  std::vector<SequenceSpan> last_spans() const {
    std::vector<SequenceSpan> last = spans_;
    for (SequenceSpan& span : last) {
      const int64_t skipped = std::max<int64_t>(0, span.num_tokens - kVerifiedRows);
      span = {span.first_row + skipped, span.num_tokens - skipped, span.num_past + skipped};
    }
    return last;
  }
  ferry::AttentionArgs args(const std::vector<SequenceSpan>& spans, Matrix& out, DType kv_dtype = DType::kBF16) {
    const bool is_codes = kv_dtype == DType::kI8;
    return {.q = queries_.view(),
            .cache = {is_codes ? key_codes_.data() : keys_.view().data, is_codes ? value_codes_.data() : values_.view().data,
                      kv_dtype, shape_.num_kv_heads, kBlockTokens, shape_.head_dim},
            .sequences = spans,
            .block_tables = tables_,
            .num_heads = shape_.num_heads,
            .out = out.view()};
  }
  void run(ferry::Stream& stream, const OpTable& table, const std::vector<SequenceSpan>& spans, Matrix& out,
           DType kv_dtype = DType::kBF16) {
    table.attention(stream, args(spans, out, kv_dtype));
  }
  Matrix make_out() const { return Matrix(DType::kBF16, queries_.rows(), queries_.cols()); }
  ferry::bench::Work work(const OpTable& table, DType kv_dtype = DType::kBF16) const {
    const auto tokens = static_cast<double>(shape_.num_tokens), past = static_cast<double>(shape_.num_past);
    const auto sequences = static_cast<double>(shape_.num_sequences);
    const double pairs = sequences * tokens * (past + (tokens + 1) / 2);
    const auto kv_bytes = static_cast<double>(2 * shape_.num_kv_heads * ferry::kv_run_bytes(kv_dtype, 1, shape_.head_dim));
    const auto q_cols = static_cast<double>(shape_.num_heads * shape_.head_dim);
    return {.bytes = sequences * ((past + tokens) * kv_bytes + tokens * 4 * q_cols),
            .operations = pairs * q_cols * 4,
            .dtype = DType::kBF16,
            .kernels = table.name};
  }

 private:
  Matrix make_cache(uint32_t seed) const {
    return ferry::bench::uniform_matrix(DType::kBF16, shape_.num_sequences * blocks_each_ * shape_.num_kv_heads * kBlockTokens,
                                        shape_.head_dim, seed);
  }

  /// As codes; what they stand for takes the place of `rows`, so that both caches hold the same.
  static std::vector<std::byte> encode(ferry::Stream& stream, Matrix& rows) {
    const int64_t head_dim = rows.cols(), num_runs = rows.rows() / kBlockTokens;
    const int64_t run_bytes = ferry::kv_run_bytes(DType::kI8, kBlockTokens, head_dim);
    std::vector<std::byte> codes(static_cast<std::size_t>(num_runs * run_bytes));
    std::vector<int32_t> blocks(static_cast<std::size_t>(num_runs));
    std::iota(blocks.begin(), blocks.end(), 0);
    const std::vector<SequenceSpan> all{{0, rows.rows(), 0}};
    const std::vector<const int32_t*> table{blocks.data()};
    ferry::select_op_table("auto").kv_append(stream,
                                             {.k = rows.view(),
                                              .v = rows.view(),
                                              .cache = {codes.data(), codes.data(), DType::kI8, 1, kBlockTokens, head_dim},
                                              .sequences = all,
                                              .block_tables = table});
    for (int64_t row = 0; row < rows.rows(); ++row) {
      const std::byte* run = codes.data() + row / kBlockTokens * run_bytes;
      const std::byte* from = run + row % kBlockTokens * head_dim;
      const std::byte* exponents = run + kBlockTokens * head_dim + row % kBlockTokens * ferry::kv_groups(head_dim);
      for (int64_t d = 0; d < head_dim; ++d) {
        const float scale = std::bit_cast<float>(static_cast<uint32_t>(exponents[d / ferry::kKvGroupCols]) << 23);
        rows.view().row<ferry::bfloat16>(row)[d] = ferry::to_bfloat16(static_cast<float>(static_cast<int8_t>(from[d])) * scale);
      }
    }
    return codes;
  }

  Shape shape_;
  int64_t blocks_each_;
  Matrix queries_, keys_, values_;
  std::vector<std::byte> key_codes_, value_codes_;  // the same
  std::vector<int32_t> block_ids_;
  std::vector<const int32_t*> tables_;
  std::vector<SequenceSpan> spans_;
};

void verify(const Scene& scene, const Matrix& expected, const Matrix& actual, const std::string& name) {
  for (const SequenceSpan& span : scene.last_spans()) {
    ferry::bench::require_close(expected.view().rows_from(span.first_row, span.num_tokens),
                                actual.view().rows_from(span.first_row, span.num_tokens), kTolerance, name);
  }
}

/// For units, whose weights are rounded to bf16.
void verify(const Scene& scene, const ferry::test::RoundedAttention& expected, const Matrix& actual, const std::string& name) {
  for (const SequenceSpan& span : scene.last_spans()) {
    const std::string text = ferry::test::difference(expected, actual.view(), span.first_row, span.num_tokens, kTolerance);
    if (!text.empty()) throw ferry::Error(ferry::ErrorCode::kInternal, name + ": " + text);
  }
}

template <class Expected>
void run_tables(Bench& bench, Scene& scene, const Expected& expected, const std::vector<const OpTable*>& tables) {
  for (const OpTable* table : tables) {
    if (std::strcmp(table->name, "ref") == 0 || !bench.wants(table->name)) continue;
    const std::string name = std::string(scene.name()) + " " + table->name;
    Matrix out = scene.make_out();
    const auto call = [&](int64_t) { scene.run(bench.stream(), *table, scene.spans(), out); };
    call(0);
    verify(scene, expected, out, name);
    bench.measure(name, scene.work(*table), call);
    Matrix coded_out = scene.make_out();
    const auto coded_call = [&](int64_t) { scene.run(bench.stream(), *table, scene.spans(), coded_out, DType::kI8); };
    coded_call(0);
    for (int64_t r = 0; r < out.rows(); ++r) {
      if (std::memcmp(out.view().row_bytes(r), coded_out.view().row_bytes(r), static_cast<std::size_t>(out.cols()) * 2) != 0)
        throw ferry::Error(ferry::ErrorCode::kInternal, name + ": over codes row " + std::to_string(r) + " has other bits");
    }
    bench.measure(name + " int8", scene.work(*table, DType::kI8), coded_call);
  }
}

void run_shape(Bench& bench, const Shape& shape) {
  Scene scene(shape, bench.stream());
  Matrix out = scene.make_out();
  const std::vector<const OpTable*> units = ferry::available_unit_tables();
  if (!units.empty()) run_tables(bench, scene, ferry::test::rounded_attention(scene.args(scene.last_spans(), out)), units);
  scene.run(bench.stream(), ferry::select_op_table("ref"), scene.last_spans(), out);
  run_tables(bench, scene, out, ferry::available_op_tables());
}

}  // namespace

int main(int argc, char** argv) {
  return ferry::bench::run_program(argc, argv, "attention over the paged cache", [](Bench& bench) {
    for (const Shape& shape : bench.settings().is_quick ? kQuickShapes : kShapes) run_shape(bench, shape);
  });
}
