#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/kernels/matrices.h"
#include "tests/support/op_test.h"

// Shapes that take other ways through the shader than those of the tests for every implementation: groups of query heads that
// do not fill a tile, heads that no power of two fits, and tiles enough to walk along all keys instead of splitting them.

namespace ferry::test {
namespace {

constexpr int64_t kBlockTokens = 16;

// As for every implementation: errors scale with the values, which are of order one; in bf16 one rounding may flip.
Tolerance tolerance_of(DType dtype) { return dtype == DType::kF32 ? Tolerance{3e-6, 3e-6} : Tolerance{2e-5, 0.0079, 0.02}; }

struct Shape {
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t width() const { return num_heads * head_dim; }
};

/// Queries of some sequences and their cache, whose blocks lie in a shuffled order.
struct Scene {
  Scene(DType dtype, const Shape& dims, std::vector<SequenceSpan> spans, float deviation) : shape(dims), sequences(spans) {
    std::vector<int32_t> ids;
    int64_t num_rows = 0;
    for (const SequenceSpan& span : sequences) {
      ids.resize(ids.size() + static_cast<std::size_t>((span.num_past + span.num_tokens) / kBlockTokens + 1));
      num_rows = std::max(num_rows, span.first_row + span.num_tokens);
    }
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
    const int64_t cache_rows = std::ssize(ids) * shape.num_kv_heads * kBlockTokens;
    keys = TestMatrix(dtype, cache_rows, shape.head_dim).fill_random(2);
    values = TestMatrix(dtype, cache_rows, shape.head_dim).fill_random(3);
    q = TestMatrix(dtype, num_rows, shape.width(), 5).fill_random(4, deviation);
    for (const SequenceSpan& span : sequences) {
      const auto count = static_cast<std::size_t>((span.num_past + span.num_tokens) / kBlockTokens + 1);
      tables.emplace_back(ids.end() - static_cast<int64_t>(count), ids.end());
      ids.resize(ids.size() - count);
    }
    for (const std::vector<int32_t>& table : tables) block_tables.push_back(table.data());
  }
  TestMatrix result() const { return TestMatrix(q.view().dtype, q.view().rows, shape.width(), 3).fill(0.0f); }

  /// Attends `some`, which have the block tables from `first_table` on.
  void attend(const OpTable& ops, std::span<const SequenceSpan> some, std::size_t first_table, MatrixView out) {
    TestStream stream(1);
    ops.attention(stream, {.q = q.view(),
                           .cache = {keys.view().data, values.view().data, q.view().dtype, shape.num_kv_heads, kBlockTokens,
                                     shape.head_dim},
                           .sequences = some,
                           .block_tables = std::span(block_tables).subspan(first_table, some.size()),
                           .num_heads = shape.num_heads,
                           .out = out});
  }
  /// One token of a sequence by itself.
  void attend_row(const OpTable& ops, std::size_t sequence_idx, int64_t token, MatrixView out) {
    const SequenceSpan& span = sequences[sequence_idx];
    const SequenceSpan one{span.first_row + token, 1, span.num_past + token};
    attend(ops, {&one, 1}, sequence_idx, out);
  }

  Shape shape;
  std::vector<SequenceSpan> sequences;
  TestMatrix q{DType::kF32, 0, 0}, keys = q, values = q;
  std::vector<std::vector<int32_t>> tables;
  std::vector<const int32_t*> block_tables;
};

class VulkanAttention : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (vulkan_table() == nullptr) GTEST_SKIP() << "no Vulkan device";
  }
};
INSTANTIATE_TEST_SUITE_P(DTypes, VulkanAttention, testing::ValuesIn(kBothDTypes),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

// Groups of 1, 3, 5, 7, 8 and 16 query heads; past lengths at both sides of the splits of 128 keys.
TEST_P(VulkanAttention, GroupsAndHeadsOfManySizesLikeRef) {
  for (const Shape& shape : {Shape{10, 2, 300}, {14, 2, 128}, {16, 1, 72}, {16, 2, 8}, {3, 3, 192}, {6, 2, 144}}) {
    Scene scene(GetParam(), shape, {{0, 1, 0}, {1, 1, 127}, {2, 13, 0}, {16, 5, 125}, {21, 1, 300}}, 2.0f);
    TestMatrix actual = scene.result(), expected = actual;
    scene.attend(*vulkan_table(), scene.sequences, 0, actual.view());
    scene.attend(ref::kOpTable, scene.sequences, 0, expected.view());
    EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance_of(GetParam()))) << "head_dim " << shape.head_dim;
    EXPECT_TRUE(actual.padding_intact());
  }
}

// A token's row is the same bits in a prefill, in a decode step and beside other sequences.
TEST_P(VulkanAttention, RowsAloneAreTheRowsOfAMixedCall) {
  for (const Shape& shape : {Shape{16, 1, 72}, {10, 2, 128}, {3, 3, 144}}) {
    Scene scene(GetParam(), shape, {{0, 40, 0}, {40, 1, 150}, {41, 9, 250}}, 1.0f);
    TestMatrix together = scene.result(), alone = together;
    scene.attend(*vulkan_table(), scene.sequences, 0, together.view());
    for (std::size_t s = 0; s < scene.sequences.size(); ++s) {
      for (int64_t t = 0; t < scene.sequences[s].num_tokens; ++t) scene.attend_row(*vulkan_table(), s, t, alone.view());
    }
    EXPECT_TRUE(all_close(together.view(), alone.view(), kExact)) << "head_dim " << shape.head_dim;
  }
}

// 64 workgroups and more walk along all keys of their rows, which one token does split by split: the same bits.
TEST_P(VulkanAttention, WalkingGivesTheBitsOfSplits) {
  Scene scene(GetParam(), {8, 2, 256}, {{0, 260, 100}, {260, 1, 290}}, 1.0f);
  TestMatrix together = scene.result();
  scene.attend(*vulkan_table(), scene.sequences, 0, together.view());
  for (const int64_t token : {0, 27, 28, 100, 155, 156, 259}) {
    TestMatrix alone = scene.result(), expected = alone;
    scene.attend_row(*vulkan_table(), 0, token, alone.view());
    scene.attend_row(ref::kOpTable, 0, token, expected.view());
    const ConstMatrixView row = together.view().rows_from(token, 1);
    EXPECT_TRUE(all_close(row, alone.view().rows_from(token, 1), kExact)) << "token " << token;
    EXPECT_TRUE(all_close(row, expected.view().rows_from(token, 1), tolerance_of(GetParam()))) << "token " << token;
  }
}

// Scores of several thousand overflow unless the largest is taken off first.
TEST_P(VulkanAttention, HugeScoresStayFinite) {
  Scene scene(GetParam(), {16, 1, 72}, {{0, 4, 300}}, 3000.0f);
  TestMatrix actual = scene.result(), expected = actual;
  scene.attend(*vulkan_table(), scene.sequences, 0, actual.view());
  scene.attend(ref::kOpTable, scene.sequences, 0, expected.view());
  // An error of 2^-23 in a score of thousands moves a weight by 2^-10 and more.
  EXPECT_TRUE(all_close(actual.view(), expected.view(), {0.02, 0.02}));
}

}  // namespace
}  // namespace ferry::test
