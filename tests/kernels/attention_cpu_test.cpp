#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/matrices.h"

namespace ferry {
namespace {

struct Heads {
  int64_t num_heads, num_kv_heads, head_dim, block_tokens;
  std::string text() const {
    return std::to_string(num_heads) + "/" + std::to_string(num_kv_heads) + " heads of " + std::to_string(head_dim) +
           ", blocks of " + std::to_string(block_tokens);
  }
};

constexpr Heads kHeads[] = {{4, 2, 24, 7}, {3, 1, 40, 16}, {8, 8, 64, 5}, {16, 2, 256, 32}, {70, 1, 16, 3}};

/// Sequences with their caches. Blocks of different sequences alternate, and every slot behind a sequence's last token is NaN.
class Scene {
 public:
  Scene(DType dtype, Heads heads, std::vector<SequenceSpan> sequences, float query_scale = 1.0f)
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
    std::vector<const int32_t*> tables;
    for (const std::size_t s : cache_of) tables.push_back(tables_[s].data());
    table.attention(stream, {.q = queries_.view(),
                             .cache = {const_cast<std::byte*>(keys_.view().data), const_cast<std::byte*>(values_.view().data),
                                       queries_.dtype(), heads_.num_kv_heads, heads_.block_tokens, heads_.head_dim},
                             .sequences = sequences,
                             .block_tables = tables,
                             .num_heads = heads_.num_heads,
                             .out = out.view()});
    return out;
  }
  Matrix run(const OpTable& table, int num_threads) const {
    std::vector<std::size_t> all(sequences_.size());
    for (std::size_t s = 0; s < all.size(); ++s) all[s] = s;
    return run(table, num_threads, sequences_, all);
  }

 private:
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

  Heads heads_;
  std::vector<SequenceSpan> sequences_;
  Matrix queries_, keys_, values_;
  std::vector<std::vector<int32_t>> tables_;
};

const std::vector<SequenceSpan> kMixed = {{2, 1, 0}, {3, 1, 130}, {4, 67, 0}, {80, 5, 62}, {71, 9, 200}};

TEST(CpuAttention, EqualsReference) {
  for (const DType dtype : kBothDTypes) {
    for (const Heads heads : kHeads) {
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
    for (const Heads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      for (const OpTable* table : vector_op_tables()) {
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
  constexpr int64_t kTokens = 150;
  for (const DType dtype : kBothDTypes) {
    for (const Heads heads : kHeads) {
      const Scene scene(dtype, heads, {{0, kTokens, 0}});
      for (const OpTable* table : vector_op_tables()) {
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

TEST(CpuAttention, InstructionSetsGiveEqualBits) {
  const std::vector<const OpTable*> tables = vector_op_tables();
  for (const DType dtype : kBothDTypes) {
    for (const Heads heads : kHeads) {
      const Scene scene(dtype, heads, kMixed);
      for (std::size_t i = 1; i < tables.size(); ++i) {
        expect_same_bits(scene.run(*tables[0], 1).view(), scene.run(*tables[i], 1).view(), dtype_name(dtype) + heads.text());
      }
    }
  }
}

}  // namespace
}  // namespace ferry
