#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/attention_heads.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draws.h"
#include "tests/support/rounded_attention.h"

namespace ferry {
namespace {

constexpr AttentionHeads kHeads[] = {{4, 2, 24, 7}, {3, 1, 40, 16}, {8, 8, 64, 5}, {16, 2, 256, 32}, {70, 1, 16, 3}};

/// Sequences with their caches. Blocks of different sequences alternate, and every slot behind a sequence's last token is NaN.
class Scene {
 public:
  Scene(DType dtype, AttentionHeads heads, std::vector<SequenceSpan> sequences, float query_scale = 1.0f)
      : heads_(heads), sequences_(std::move(sequences)) {
    int64_t num_rows = 0;
    int64_t num_blocks = 0;
    for (const SequenceSpan& s : sequences_) {
      num_rows = std::max(num_rows, s.first_row + s.num_tokens);
      num_blocks = std::max(num_blocks, (s.num_past + s.num_tokens + heads.block_tokens - 1) / heads.block_tokens);
    }
    const auto num_sequences = static_cast<int64_t>(sequences_.size());
    queries_ = random_matrix(dtype, num_rows, heads.num_heads * heads.head_dim, 11, query_scale);
    keys_ = Matrix(dtype, num_blocks * num_sequences * heads.num_kv_heads * heads.block_tokens, heads.head_dim);
    values_ = Matrix(dtype, keys_.rows(), heads.head_dim);
    fill(keys_.view(), std::numeric_limits<float>::quiet_NaN());
    fill(values_.view(), std::numeric_limits<float>::quiet_NaN());
    tables_.resize(sequences_.size());
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      for (int64_t b = 0; b < num_blocks; ++b) {
        tables_[s].push_back(static_cast<int32_t>((num_blocks - 1 - b) * num_sequences + static_cast<int64_t>(s)));
      }
      fill_cache(s);
    }
  }

  const std::vector<SequenceSpan>& sequences() const { return sequences_; }

  /// Runs `sequences`, the s-th with the cache of sequence cache_of[s], and returns all rows (untouched ones are zero).
  Matrix run(const OpTable& table, int num_threads, const std::vector<SequenceSpan>& sequences,
             const std::vector<std::size_t>& cache_of) const {
    test::TestStream stream(num_threads);
    Matrix out(queries_.dtype(), queries_.rows(), queries_.cols());
    const std::vector<const int32_t*> tables = tables_of(cache_of);
    table.attention(stream, args(sequences, tables, out));
    return out;
  }
  Matrix run(const OpTable& table, int num_threads) const { return run(table, num_threads, sequences_, all()); }

  /// What a unit may give, whose weights are rounded to bf16.
  test::RoundedAttention rounded() const {
    Matrix out(queries_.dtype(), queries_.rows(), queries_.cols());
    return test::rounded_attention(args(sequences_, tables_of(all()), out));
  }
  /// Empty if `actual` is within `expected`, else what is not.
  std::string difference(const test::RoundedAttention& expected, const Matrix& actual) const {
    for (const SequenceSpan& span : sequences_) {
      std::string text = test::difference(expected, actual.view(), span.first_row, span.num_tokens, 5e-6);
      if (!text.empty()) return text;
    }
    return {};
  }

 private:
  AttentionArgs args(const std::vector<SequenceSpan>& sequences, const std::vector<const int32_t*>& tables, Matrix& out) const {
    return {.q = queries_.view(),
            .cache = {const_cast<std::byte*>(keys_.view().data), const_cast<std::byte*>(values_.view().data), queries_.dtype(),
                      heads_.num_kv_heads, heads_.block_tokens, heads_.head_dim},
            .sequences = sequences,
            .block_tables = tables,
            .num_heads = heads_.num_heads,
            .out = out.view()};
  }
  std::vector<std::size_t> all() const {
    std::vector<std::size_t> sequences(sequences_.size());
    std::iota(sequences.begin(), sequences.end(), 0);
    return sequences;
  }
  std::vector<const int32_t*> tables_of(const std::vector<std::size_t>& cache_of) const {
    std::vector<const int32_t*> tables;
    for (const std::size_t s : cache_of) tables.push_back(tables_[s].data());
    return tables;
  }
  void fill_cache(std::size_t s) {
    const int64_t num_positions = sequences_[s].num_past + sequences_[s].num_tokens;
    for (int64_t p = 0; p < num_positions; ++p) {
      for (int64_t h = 0; h < heads_.num_kv_heads; ++h) {
        const int64_t block = tables_[s][static_cast<std::size_t>(p / heads_.block_tokens)];
        const int64_t row = (block * heads_.num_kv_heads + h) * heads_.block_tokens + p % heads_.block_tokens;
        const auto seed = static_cast<uint32_t>(1000 * s + static_cast<std::size_t>(2 * (p * heads_.num_kv_heads + h)));
        fill_random(keys_.view().rows_from(row, 1), seed);
        fill_random(values_.view().rows_from(row, 1), seed + 1);
      }
    }
  }

  AttentionHeads heads_;
  std::vector<SequenceSpan> sequences_;
  Matrix queries_, keys_, values_;
  std::vector<std::vector<int32_t>> tables_;
};

/// The vector tables, and for bf16 the units that multiply it.
std::vector<const OpTable*> attending_tables(DType dtype) {
  std::vector<const OpTable*> tables = vector_op_tables();
  if (dtype == DType::kBF16) std::ranges::copy(available_unit_tables(), std::back_inserter(tables));
  return tables;
}

const std::vector<SequenceSpan> kMixed = {{2, 1, 0}, {3, 1, 130}, {4, 67, 0}, {80, 5, 62}, {71, 9, 200}};

TEST(CpuAttention, EqualsReference) {
  for (const DType dtype : kBothDTypes) {
    for (const AttentionHeads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      const Matrix expected = scene.run(ref::kOpTable, 1);
      for (const OpTable* table : vector_op_tables()) {
        expect_close(expected.view(), scene.run(*table, 2).view(), 5e-6f,
                     std::string(table->name) + " " + dtype_name(dtype) + " " + heads.text());
      }
    }
  }
}

TEST(CpuAttention, LargeScoresStayFinite) {
  const Scene scene(DType::kF32, {4, 2, 24, 7}, {{0, 40, 100}}, 200.0f);
  const Matrix expected = scene.run(ref::kOpTable, 1);
  for (const OpTable* table : vector_op_tables())
    expect_close(expected.view(), scene.run(*table, 1).view(), 1e-3f, table->name);
}

TEST(CpuAttention, RowsDoNotDependOnThreadsOrNeighbours) {
  for (const DType dtype : kBothDTypes) {
    for (const AttentionHeads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      for (const OpTable* table : attending_tables(dtype)) {
        const std::string what = std::string(table->name) + " " + dtype_name(dtype) + " " + heads.text();
        const Matrix whole = scene.run(*table, 1);
        for (const int num_threads : {2, 5}) expect_same_bits(whole.view(), scene.run(*table, num_threads).view(), what);
        for (std::size_t s = 0; s < kMixed.size(); ++s) {
          const Matrix alone = scene.run(*table, 2, {kMixed[s]}, {s});
          expect_same_bits(whole.view().rows_from(kMixed[s].first_row, kMixed[s].num_tokens),
                           alone.view().rows_from(kMixed[s].first_row, kMixed[s].num_tokens), what + " alone");
        }
      }
    }
  }
}

TEST(CpuAttention, DecodeAndChunksGiveThePrefillsBits) {
  constexpr int64_t kTokens = test::draws(150, 80);
  for (const DType dtype : kBothDTypes) {
    for (const AttentionHeads heads : kHeads) {
      const Scene scene(dtype, heads, {{0, kTokens, 0}});
      for (const OpTable* table : attending_tables(dtype)) {
        const Matrix prefill = scene.run(*table, 2);
        for (const int64_t piece : {int64_t{1}, int64_t{37}}) {
          std::vector<SequenceSpan> pieces;
          for (int64_t t = 0; t < kTokens; t += piece) pieces.push_back({t, std::min(piece, kTokens - t), t});
          const Matrix out = scene.run(*table, 2, pieces, std::vector<std::size_t>(pieces.size(), 0));
          expect_same_bits(prefill.view(), out.view(),
                           std::string(table->name) + " " + dtype_name(dtype) + " " + heads.text() + " in pieces of " +
                               std::to_string(piece));
          const SequenceSpan last = pieces.back();
          const Matrix alone = scene.run(*table, 1, {last}, {0});
          expect_same_bits(prefill.view().rows_from(last.first_row, last.num_tokens),
                           alone.view().rows_from(last.first_row, last.num_tokens), "last piece alone");
        }
      }
    }
  }
}

// Units take keys in splits of 2048. Alone with threads to spare, a row's splits are tasks; with one thread, or in a long
// prefill, one task takes them all.
constexpr int64_t kSplit = 2048;
constexpr AttentionHeads kSplitHeads[] = {{4, 4, 24, 7},   {4, 1, 64, 16}, {16, 2, 256, 32}, {16, 1, 96, 48},
                                          {32, 1, 40, 32}, {5, 1, 32, 16}, {6, 2, 64, 16},   {14, 2, 32, 16}};

TEST(CpuAttention, EndsOfSplitsChangeNoBits) {
  constexpr int64_t kTokens = 19;
  for (const OpTable* table : available_unit_tables()) {
    for (const AttentionHeads heads : kSplitHeads) {
      for (const int64_t boundary : {kSplit, 2 * kSplit}) {
        const int64_t past = boundary - 5;
        const std::string what = std::string(table->name) + " " + heads.text() + " from " + std::to_string(past);
        const Scene scene(DType::kBF16, heads, {{0, kTokens, past}});
        const Matrix whole = scene.run(*table, 1);
        for (const int num_threads : {2, 9}) expect_same_bits(whole.view(), scene.run(*table, num_threads).view(), what);
        for (const int64_t piece : {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{11}}) {
          std::vector<SequenceSpan> pieces;
          for (int64_t t = 0; t < kTokens; t += piece) pieces.push_back({t, std::min(piece, kTokens - t), past + t});
          const Matrix together = scene.run(*table, 3, pieces, std::vector<std::size_t>(pieces.size(), 0));
          expect_same_bits(whole.view(), together.view(), what + " in pieces of " + std::to_string(piece));
          for (const SequenceSpan& span : pieces) {
            const int num_threads = span.first_row % 2 == 0 ? 1 : 8;
            const Matrix alone = scene.run(*table, num_threads, {span}, {0});
            expect_same_bits(whole.view().rows_from(span.first_row, span.num_tokens),
                             alone.view().rows_from(span.first_row, span.num_tokens), what + " a piece alone");
          }
        }
      }
    }
  }
}

TEST(CpuAttention, ALongPastBesideShortOnesChangesNoBits) {
  const std::vector<SequenceSpan> spans = {{0, 1, 10}, {1, 1, 3 * kSplit + 70}, {2, 3, 0}, {5, 2, kSplit - 1}};
  for (const OpTable* table : available_unit_tables()) {
    for (const AttentionHeads heads : kSplitHeads) {
      const Scene scene(DType::kBF16, heads, spans);
      const Matrix whole = scene.run(*table, 1);
      for (const int num_threads : {2, 16}) {
        expect_same_bits(whole.view(), scene.run(*table, num_threads).view(), table->name + (" " + heads.text()));
      }
      for (std::size_t s = 0; s < spans.size(); ++s) {
        const Matrix alone = scene.run(*table, 8, {spans[s]}, {s});
        expect_same_bits(whole.view().rows_from(spans[s].first_row, spans[s].num_tokens),
                         alone.view().rows_from(spans[s].first_row, spans[s].num_tokens), table->name + (" " + heads.text()));
      }
    }
  }
}

TEST(CpuAttention, UnitsRoundWeightsAndNothingElse) {
  const std::vector<SequenceSpan> edges = {{0, 1, 0}, {1, 3, 120}, {4, 20, 250}, {24, 9, 2040}, {33, 33, 0}};
  for (const AttentionHeads heads : kSplitHeads) {
    for (const float query_scale : {0.01f, 30.0f}) {
      const Scene scene(DType::kBF16, heads, edges, query_scale);
      const test::RoundedAttention expected = scene.rounded();
      for (const OpTable* table : available_unit_tables()) {
        for (const int num_threads : {1, 7})
          EXPECT_EQ(scene.difference(expected, scene.run(*table, num_threads)), "") << table->name << " " << heads.text();
      }
    }
  }
  for (const AttentionHeads heads : kHeads) {
    const Scene scene(DType::kBF16, heads, kMixed);
    const test::RoundedAttention expected = scene.rounded();
    for (const OpTable* table : available_unit_tables())
      EXPECT_EQ(scene.difference(expected, scene.run(*table, 2)), "") << table->name << " " << heads.text();
  }
}

// Rounded weights are off by 2^-8 of themselves at most, and so their mean of values, by that of the values' deviation.
TEST(CpuAttention, RoundedWeightsStayNearReference) {
  const Scene scene(DType::kBF16, {8, 1, 64, 16}, {{0, 2, 2 * kSplit - 1}, {2, 1, kSplit}, {3, 1, 3 * kSplit + 900}});
  const Matrix expected = scene.run(ref::kOpTable, 1);
  for (const OpTable* table : available_unit_tables()) {
    const Matrix actual = scene.run(*table, 8);
    for (int64_t r = 0; r < expected.rows(); ++r) {
      for (int64_t c = 0; c < expected.cols(); ++c)
        EXPECT_NEAR(element(expected.view(), r, c), element(actual.view(), r, c), 1.0 / 256) << table->name;
    }
  }
}

TEST(CpuAttention, SplitsEqualReference) {
  const std::vector<SequenceSpan> spans = {{0, 2, 2 * kSplit - 1}, {2, 1, kSplit}, {3, 1, 3 * kSplit + 900}};
  for (const float query_scale : {1.0f, 8.0f}) {
    const Scene scene(DType::kBF16, {8, 1, 64, 16}, spans, query_scale);
    const Matrix expected = scene.run(ref::kOpTable, 1);
    for (const OpTable* table : vector_op_tables()) {
      for (const int num_threads : {1, 8})
        expect_close(expected.view(), scene.run(*table, num_threads).view(), 2e-5f * query_scale, table->name);
    }
    const test::RoundedAttention rounded = scene.rounded();
    for (const OpTable* table : available_unit_tables()) {
      for (const int num_threads : {1, 8})
        EXPECT_EQ(scene.difference(rounded, scene.run(*table, num_threads)), "") << table->name;
    }
  }
}

// 128 splits: the end of the longest context of Qwen3.5.
TEST(CpuAttention, TheLastOf262144TokensEqualReferenceInAnyPieces) {
  constexpr int64_t kTokens = 5, kPast = 262144 - kTokens;
  const Scene scene(DType::kBF16, {4, 1, 32, 16}, {{0, kTokens, kPast}}, 8.0f);
  const Matrix expected = scene.run(ref::kOpTable, 1);
  for (const OpTable* table : vector_op_tables())
    expect_close(expected.view(), scene.run(*table, 3).view(), 2e-4f, table->name);
  const test::RoundedAttention rounded = scene.rounded();
  for (const OpTable* table : available_unit_tables()) EXPECT_EQ(scene.difference(rounded, scene.run(*table, 3)), "");
  for (const OpTable* table : attending_tables(DType::kBF16)) {
    const Matrix whole = scene.run(*table, 1);
    for (const int64_t piece : {int64_t{1}, int64_t{4}}) {
      std::vector<SequenceSpan> pieces;
      for (int64_t t = 0; t < kTokens; t += piece) pieces.push_back({t, std::min(piece, kTokens - t), kPast + t});
      const Matrix out = scene.run(*table, 8, pieces, std::vector<std::size_t>(pieces.size(), 0));
      expect_same_bits(whole.view(), out.view(), table->name + (" in pieces of " + std::to_string(piece)));
    }
  }
}

TEST(CpuAttention, InstructionSetsGiveEqualBits) {
  const std::vector<const OpTable*> tables = vector_op_tables();
  for (const DType dtype : kBothDTypes) {
    for (const AttentionHeads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      for (std::size_t i = 1; i < tables.size(); ++i) {
        expect_same_bits(scene.run(*tables[0], 1).view(), scene.run(*tables[i], 1).view(), dtype_name(dtype) + heads.text());
      }
    }
  }
}

}  // namespace
}  // namespace ferry
