#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

// The sum of squares is taken in another order: a relative error of some 2^-22 in the scale. The gated norm rounds to bf16
// three times, so that a flip may move a result by two neighbours.
Tolerance tolerance_of(DType dtype) { return dtype == DType::kF32 ? Tolerance{1e-30, 3e-6} : Tolerance{1e-30, 0.0161, 0.02}; }

class NormTest : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Tables, NormTest, testing::ValuesIn(op_cases()), op_case_name);

TEST_P(NormTest, RmsNormLikeRef) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {3, 15}, {2, 64}, {4, 67}, {5, 257}, {41, 2051}}) {
    const TestMatrix x = TestMatrix(dtype(), rows, cols, 3).fill_random(1, 2.0f);
    const std::vector<float> weight = random_floats(static_cast<std::size_t>(cols), 2, 0.3f);
    TestMatrix actual(dtype(), rows, cols, 2), serial(dtype(), rows, cols), expected(dtype(), rows, cols);
    table().rms_norm(stream_, {.x = x.view(), .weight = weight.data(), .eps = 1e-6f, .out = actual.view()});
    table().rms_norm(serial_stream_, {.x = x.view(), .weight = weight.data(), .eps = 1e-6f, .out = serial.view()});
    ref::kOpTable.rms_norm(serial_stream_, {.x = x.view(), .weight = weight.data(), .eps = 1e-6f, .out = expected.view()});
    EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance_of(dtype()))) << rows << " x " << cols;
    EXPECT_TRUE(all_close(actual.view(), serial.view(), kExact));
    EXPECT_TRUE(actual.padding_intact());
  }
}

TEST_P(NormTest, RmsNormIsTheFormula) {
  const int64_t cols = 83;
  const float eps = 0.125f;  // large, so that a forgotten eps shows
  const TestMatrix x = TestMatrix(dtype(), 3, cols).fill_random(3);
  const std::vector<float> weight = random_floats(static_cast<std::size_t>(cols), 4);
  TestMatrix out(dtype(), 3, cols);
  table().rms_norm(stream_, {.x = x.view(), .weight = weight.data(), .eps = eps, .out = out.view()});
  for (int64_t r = 0; r < 3; ++r) {
    double sum = 0.0;
    for (int64_t c = 0; c < cols; ++c) sum += static_cast<double>(x.get(r, c)) * x.get(r, c);
    const double root = std::sqrt(sum / static_cast<double>(cols) + eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double expected = x.get(r, c) / root * weight[static_cast<std::size_t>(c)];
      EXPECT_NEAR(out.get(r, c), expected, std::abs(expected) * (is_f32() ? 1e-6 : 0.0040)) << r << ", " << c;
    }
  }
}

// Heads are normed inside a wider row: the view's rows lie further apart than they are long, and in and out are the same.
TEST_P(NormTest, RmsNormOfAHeadInsideARowInPlace) {
  const int64_t head_dim = 24, num_heads = 3;
  TestMatrix wide = TestMatrix(dtype(), 5, head_dim * num_heads).fill_random(5);
  const TestMatrix before = wide;
  const std::vector<float> weight(static_cast<std::size_t>(head_dim), 1.0f);
  const MatrixView head = wide.view().cols_from(head_dim, head_dim);
  TestMatrix expected(dtype(), 5, head_dim);
  table().rms_norm(stream_, {.x = head, .weight = weight.data(), .eps = 1e-6f, .out = expected.view()});
  table().rms_norm(stream_, {.x = head, .weight = weight.data(), .eps = 1e-6f, .out = head});
  EXPECT_TRUE(all_close(head, expected.view(), kExact));
  EXPECT_TRUE(all_close(wide.view().cols_from(0, head_dim), before.view().cols_from(0, head_dim), kExact));
  EXPECT_TRUE(
      all_close(wide.view().cols_from(2 * head_dim, head_dim), before.view().cols_from(2 * head_dim, head_dim), kExact));
}

TEST_P(NormTest, RowDoesNotDependOnOtherRows) {
  const int64_t rows = 37, cols = 2053;
  const TestMatrix x = TestMatrix(dtype(), rows, cols).fill_random(6);
  const std::vector<float> weight = random_floats(static_cast<std::size_t>(cols), 7);
  TestMatrix together(dtype(), rows, cols), alone(dtype(), rows, cols);
  table().rms_norm(stream_, {.x = x.view(), .weight = weight.data(), .eps = 1e-6f, .out = together.view()});
  for (int64_t r = 0; r < rows; ++r) {
    table().rms_norm(
        stream_, {.x = x.view().rows_from(r, 1), .weight = weight.data(), .eps = 1e-6f, .out = alone.view().rows_from(r, 1)});
  }
  EXPECT_TRUE(all_close(together.view(), alone.view(), kExact));
}

TEST_P(NormTest, GatedRmsNormLikeRef) {
  for (const DType weight_dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 3}, {3, 16}, {7, 45}, {64, 128}, {53, 515}}) {
      const TestMatrix x = TestMatrix(dtype(), rows, cols, 3).fill_random(8, 0.1f);
      const TestMatrix gate = TestMatrix(dtype(), rows, cols, 1).fill_random(9, 2.0f);
      std::vector<float> weight = random_floats(static_cast<std::size_t>(cols), 10);
      if (weight_dtype == DType::kBF16) {
        for (float& w : weight) w = round_to<bfloat16>(w);
      }
      TestMatrix actual(dtype(), rows, cols, 2), expected(dtype(), rows, cols);
      GatedRmsNormArgs args{.x = x.view(),
                            .gate = gate.view(),
                            .weight = weight.data(),
                            .weight_dtype = weight_dtype,
                            .eps = 1e-6f,
                            .out = actual.view()};
      table().gated_rms_norm(stream_, args);
      args.out = expected.view();
      ref::kOpTable.gated_rms_norm(serial_stream_, args);
      EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance_of(dtype()))) << rows << " x " << cols;
      EXPECT_TRUE(actual.padding_intact());
    }
  }
}

TEST_P(NormTest, GatedRmsNormIsTheFormulaWithItsRoundings) {
  const int64_t cols = 128;
  for (const DType weight_dtype : {DType::kF32, DType::kBF16}) {
    TestMatrix x = TestMatrix(dtype(), 4, cols).fill_random(11);
    const TestMatrix original = x;
    const TestMatrix gate = TestMatrix(dtype(), 4, cols).fill_random(12);
    std::vector<float> weight = random_floats(static_cast<std::size_t>(cols), 13);
    for (float& w : weight) w = round_to<bfloat16>(w);
    table().gated_rms_norm(stream_, {.x = x.view(),
                                     .gate = gate.view(),
                                     .weight = weight.data(),
                                     .weight_dtype = weight_dtype,
                                     .eps = 1e-6f,
                                     .out = x.view()});
    int num_unequal = 0;
    for (int64_t r = 0; r < 4; ++r) {
      double sum = 0.0;
      for (int64_t c = 0; c < cols; ++c) sum += static_cast<double>(original.get(r, c)) * original.get(r, c);
      const double root = std::sqrt(sum / static_cast<double>(cols) + 1e-6);
      for (int64_t c = 0; c < cols; ++c) {
        const double normed = nearest(dtype(), original.get(r, c) / root);
        const double product = weight[static_cast<std::size_t>(c)] * normed;
        const double weighted = dtype() == weight_dtype ? nearest(dtype(), product) : product;
        const double z = gate.get(r, c);
        const double expected = nearest(dtype(), weighted * z / (1.0 + std::exp(-z)));
        num_unequal += std::abs(x.get(r, c) - expected) > 2e-6 * std::abs(expected);
      }
    }
    EXPECT_LE(num_unequal, is_f32() ? 0 : 4) << "of " << 4 * cols;  // a tie may fall the other way in double
  }
}

TEST(NormTables, VectorBuildsGiveTheSameBits) {
  test::TestStream stream(2);
  const TestMatrix x = TestMatrix(DType::kF32, 9, 517).fill_random(14);
  const std::vector<float> weight = random_floats(517, 15);
  std::vector<TestMatrix> results;
  for (const OpTable* table : available_op_tables()) {
    if (std::string_view(table->name) == "ref") continue;
    results.emplace_back(DType::kF32, 9, 517);
    table->rms_norm(stream, {.x = x.view(), .weight = weight.data(), .eps = 1e-6f, .out = results.back().view()});
  }
  for (const TestMatrix& result : results) EXPECT_TRUE(all_close(result.view(), results.front().view(), kExact));
}

}  // namespace
}  // namespace ferry::test
