#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

// The order of the sums differs; errors scale with the values, which are of order one. In bf16 one rounding may flip.
Tolerance tolerance_of(DType dtype) { return dtype == DType::kF32 ? Tolerance{3e-6, 3e-6} : Tolerance{2e-5, 0.0079, 0.02}; }

struct Shape {
  int64_t num_heads, num_kv_heads, head_dim, block_tokens;
};

/// A paged cache whose blocks are dealt out in a shuffled order.
struct Cache {
  Cache(DType dtype, const Shape& shape, std::span<const SequenceSpan> sequences, uint32_t seed) {
    int64_t num_blocks = 0;
    for (const SequenceSpan& span : sequences) num_blocks += (span.num_past + span.num_tokens) / shape.block_tokens + 1;
    std::vector<int32_t> ids(static_cast<std::size_t>(num_blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
    for (const SequenceSpan& span : sequences) {
      const int64_t count = (span.num_past + span.num_tokens) / shape.block_tokens + 1;
      tables.emplace_back(ids.end() - count, ids.end());
      ids.resize(ids.size() - static_cast<std::size_t>(count));
    }
    for (const std::vector<int32_t>& table : tables) block_tables.push_back(table.data());
    const int64_t rows = num_blocks * shape.num_kv_heads * shape.block_tokens;
    keys = TestMatrix(dtype, rows, shape.head_dim).fill_random(seed + 1);
    values = TestMatrix(dtype, rows, shape.head_dim).fill_random(seed + 2);
    view = {keys.view().data, values.view().data, dtype, shape.num_kv_heads, shape.block_tokens, shape.head_dim};
  }
  int64_t row(std::size_t sequence_idx, int64_t position, int64_t kv_head) const {
    const int64_t block = tables[sequence_idx][static_cast<std::size_t>(position / view.block_tokens)];
    return (block * view.num_kv_heads + kv_head) * view.block_tokens + position % view.block_tokens;
  }

  TestMatrix keys{DType::kF32, 0, 0}, values{DType::kF32, 0, 0};
  std::vector<std::vector<int32_t>> tables;
  std::vector<const int32_t*> block_tables;
  KvLayerView view;
};

class AttentionTest : public OpTest {
 protected:
  void run(const OpTable& ops, Stream& stream, const Cache& cache, const TestMatrix& q, std::span<const SequenceSpan> sequences,
           int64_t num_heads, MatrixView out, std::size_t first_table = 0) {
    ops.attention(stream, {.q = q.view(),
                           .cache = cache.view,
                           .sequences = sequences,
                           .block_tables = std::span(cache.block_tables).subspan(first_table, sequences.size()),
                           .num_heads = num_heads,
                           .out = out});
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, AttentionTest, testing::ValuesIn(op_cases()), op_case_name);

TEST_P(AttentionTest, LikeRef) {
  for (const Shape& shape : {Shape{1, 1, 1, 1}, {4, 2, 16, 4}, {6, 2, 37, 7}, {3, 3, 64, 16}, {16, 2, 256, 16}}) {
    const std::vector<SequenceSpan> sequences = {{0, 1, 0}, {1, 1, 70}, {2, 13, 0}, {16, 5, 33}, {21, 1, 300}};
    const Cache cache(dtype(), shape, sequences, 1);
    const TestMatrix q = TestMatrix(dtype(), 22, shape.num_heads * shape.head_dim, 5).fill_random(2, 2.0f);
    TestMatrix actual = TestMatrix(dtype(), 22, shape.num_heads * shape.head_dim, 3).fill(0.0f);
    TestMatrix serial = actual, expected = actual;
    run(table(), stream_, cache, q, sequences, shape.num_heads, actual.view());
    run(table(), serial_stream_, cache, q, sequences, shape.num_heads, serial.view());
    run(ref::kOpTable, serial_stream_, cache, q, sequences, shape.num_heads, expected.view());
    EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance_of(dtype()))) << "head_dim " << shape.head_dim;
    EXPECT_TRUE(all_close(actual.view(), serial.view(), kExact)) << "head_dim " << shape.head_dim;
    EXPECT_TRUE(actual.padding_intact());
  }
}

TEST_P(AttentionTest, IsTheFormula) {
  const Shape shape{6, 3, 20, 4};
  const std::vector<SequenceSpan> sequences = {{0, 3, 6}, {3, 2, 0}};
  const Cache cache(dtype(), shape, sequences, 3);
  const TestMatrix q = TestMatrix(dtype(), 5, shape.num_heads * shape.head_dim).fill_random(4);
  TestMatrix out(dtype(), 5, shape.num_heads * shape.head_dim);
  run(table(), stream_, cache, q, sequences, shape.num_heads, out.view());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (int64_t t = 0; t < sequences[s].num_tokens; ++t) {
      const int64_t row = sequences[s].first_row + t;
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        double total = 0.0;
        std::vector<double> sum(static_cast<std::size_t>(shape.head_dim), 0.0);
        for (int64_t position = 0; position <= sequences[s].num_past + t; ++position) {
          const int64_t cache_row = cache.row(s, position, head / 2);
          double dot = 0.0;
          for (int64_t d = 0; d < shape.head_dim; ++d) {
            dot += static_cast<double>(q.get(row, head * shape.head_dim + d)) * cache.keys.get(cache_row, d);
          }
          const double weight = std::exp(dot / std::sqrt(20.0));
          total += weight;
          for (int64_t d = 0; d < shape.head_dim; ++d)
            sum[static_cast<std::size_t>(d)] += weight * cache.values.get(cache_row, d);
        }
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          const double expected = sum[static_cast<std::size_t>(d)] / total;
          EXPECT_NEAR(out.get(row, head * shape.head_dim + d), expected, is_f32() ? 3e-6 : std::abs(expected) * 0.00393 + 1e-5);
        }
      }
    }
  }
}

TEST_P(AttentionTest, OneKeyGivesItsValue) {
  const Shape shape{4, 2, 33, 8};
  const std::vector<SequenceSpan> sequences = {{0, 1, 0}};
  const Cache cache(dtype(), shape, sequences, 5);
  const TestMatrix q = TestMatrix(dtype(), 1, shape.num_heads * shape.head_dim).fill_random(6, 10.0f);
  TestMatrix out(dtype(), 1, shape.num_heads * shape.head_dim);
  run(table(), stream_, cache, q, sequences, shape.num_heads, out.view());
  for (int64_t head = 0; head < shape.num_heads; ++head) {
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      EXPECT_EQ(out.get(0, head * shape.head_dim + d), cache.values.get(cache.row(0, 0, head / 2), d));
    }
  }
}

// Scores of several thousand overflow unless the largest is taken off first.
TEST_P(AttentionTest, HugeScoresStayFinite) {
  const Shape shape{2, 1, 48, 8};
  const std::vector<SequenceSpan> sequences = {{0, 4, 30}};
  const Cache cache(dtype(), shape, sequences, 7);
  const TestMatrix q = TestMatrix(dtype(), 4, shape.num_heads * shape.head_dim).fill_random(8, 3000.0f);
  TestMatrix actual(dtype(), 4, shape.num_heads * shape.head_dim), expected(dtype(), 4, shape.num_heads * shape.head_dim);
  run(table(), stream_, cache, q, sequences, shape.num_heads, actual.view());
  run(ref::kOpTable, serial_stream_, cache, q, sequences, shape.num_heads, expected.view());
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < shape.num_heads * shape.head_dim; ++c) EXPECT_TRUE(std::isfinite(actual.get(r, c)));
  }
  // An error of 2^-23 in a score of thousands moves a weight by 2^-10 and more.
  EXPECT_TRUE(all_close(actual.view(), expected.view(), {0.02, 0.02}));
}

// A token's row is the same bits in a prefill, in a decode step and beside other sequences.
TEST_P(AttentionTest, RowDoesNotDependOnTheBatch) {
  const Shape shape{8, 2, 72, 16};
  const std::vector<SequenceSpan> sequences = {{0, 90, 0}, {90, 1, 150}, {91, 19, 40}};
  const Cache cache(dtype(), shape, sequences, 9);
  const int64_t width = shape.num_heads * shape.head_dim;
  const TestMatrix q = TestMatrix(dtype(), 110, width).fill_random(10);
  TestMatrix together(dtype(), 110, width), alone(dtype(), 110, width);
  run(table(), stream_, cache, q, sequences, shape.num_heads, together.view());
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (int64_t t = 0; t < sequences[s].num_tokens; ++t) {
      const SequenceSpan one{sequences[s].first_row + t, 1, sequences[s].num_past + t};
      run(table(), stream_, cache, q, {&one, 1}, shape.num_heads, alone.view(), s);
    }
  }
  EXPECT_TRUE(all_close(together.view(), alone.view(), kExact));
}

}  // namespace
}  // namespace ferry::test
