#include <gtest/gtest.h>

#include <limits>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

// One rounding of fp32 arithmetic, and the last place or two of the exponential. In bf16 a neighbour (2^-7 apart, relative) may
// be hit where an intermediate rounds the other way.
Tolerance tolerance_of(DType dtype) { return dtype == DType::kF32 ? Tolerance{1e-30, 1e-6} : Tolerance{1e-30, 0.0161, 0.01}; }

struct Shape {
  int64_t rows, cols;
};
// Below, at and above the vector width, a prime, and enough work for several tasks.
constexpr Shape kShapes[] = {{1, 1}, {3, 15}, {2, 16}, {5, 17}, {7, 131}, {0, 8}, {67, 1031}};

class ElementwiseTest : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Tables, ElementwiseTest, testing::ValuesIn(op_cases()), op_case_name);

/// Runs `op(table, stream, out)` on the tested table (three threads) and on ref, and compares; one thread must give the same
/// bits.
template <class Op>
void expect_like_ref(const OpTable& table, DType dtype, Shape shape, Stream& stream, Stream& serial_stream, Op op) {
  TestMatrix actual(dtype, shape.rows, shape.cols, 3), serial(dtype, shape.rows, shape.cols),
      expected(dtype, shape.rows, shape.cols);
  op(table, stream, actual.view());
  op(table, serial_stream, serial.view());
  op(ref::kOpTable, serial_stream, expected.view());
  EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance_of(dtype))) << shape.rows << " x " << shape.cols;
  EXPECT_TRUE(all_close(actual.view(), serial.view(), kExact));
  EXPECT_TRUE(actual.padding_intact());
}

TEST_P(ElementwiseTest, AddLikeRef) {
  for (const Shape& shape : kShapes) {
    const TestMatrix a = TestMatrix(dtype(), shape.rows, shape.cols, 1).fill_random(1);
    const TestMatrix b = TestMatrix(dtype(), shape.rows, shape.cols, 5).fill_random(2);
    expect_like_ref(table(), dtype(), shape, stream_, serial_stream_, [&](const OpTable& ops, Stream& stream, MatrixView out) {
      ops.add(stream, {.a = a.view(), .b = b.view(), .out = out});
    });
  }
}

TEST_P(ElementwiseTest, AddRoundsTiesToEvenAndWorksInPlace) {
  TestMatrix a = TestMatrix(dtype(), 1, 19).fill(1.0f);
  TestMatrix b = TestMatrix(dtype(), 1, 19).fill(1.0f / 256.0f);
  b.set(0, 1, 3.0f / 256.0f);
  b.set(0, 18, 3.0f / 256.0f);
  table().add(stream_, {.a = a.view(), .b = b.view(), .out = a.view()});
  EXPECT_EQ(a.get(0, 0), is_f32() ? 1.00390625f : 1.0f);
  EXPECT_EQ(a.get(0, 1), is_f32() ? 1.01171875f : 1.015625f);
  EXPECT_EQ(a.get(0, 17), is_f32() ? 1.00390625f : 1.0f);
  EXPECT_EQ(a.get(0, 18), is_f32() ? 1.01171875f : 1.015625f);
}

TEST_P(ElementwiseTest, AddKeepsNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  TestMatrix a = TestMatrix(dtype(), 1, 21).fill(infinity);
  TestMatrix b = TestMatrix(dtype(), 1, 21).fill(1.0f);
  a.set(0, 3, std::numeric_limits<float>::quiet_NaN());
  b.set(0, 20, -infinity);
  if (is_f32()) a.view().row<float>(0)[4] = std::bit_cast<float>(0x7f800001U);  // a NaN that truncation would make infinite
  table().add(stream_, {.a = a.view(), .b = b.view(), .out = a.view()});
  EXPECT_EQ(a.get(0, 0), infinity);
  EXPECT_TRUE(std::isnan(a.get(0, 3)));
  EXPECT_TRUE(std::isnan(a.get(0, 20)));
}

TEST_P(ElementwiseTest, SigmoidGateLikeRef) {
  for (const Shape& shape : kShapes) {
    const TestMatrix x = TestMatrix(dtype(), shape.rows, shape.cols, 2).fill_random(3);
    const TestMatrix gate = TestMatrix(dtype(), shape.rows, shape.cols).fill_random(4, 4.0f);
    expect_like_ref(table(), dtype(), shape, stream_, serial_stream_, [&](const OpTable& ops, Stream& stream, MatrixView out) {
      ops.sigmoid_gate(stream, {.x = x.view(), .gate = gate.view(), .out = out});
    });
  }
}

// For large negative gates the sigmoid is e^gate: this measures the exponential down to where it vanishes.
TEST_P(ElementwiseTest, SigmoidIsAccurateOverTheWholeRange) {
  const int64_t count = 4099;
  TestMatrix x = TestMatrix(dtype(), 1, count).fill(1.0f);
  TestMatrix gate(dtype(), 1, count), out(dtype(), 1, count);
  for (int64_t i = 0; i < count; ++i) gate.set(0, i, -110.0f + 220.0f * static_cast<float>(i) / static_cast<float>(count - 1));
  table().sigmoid_gate(stream_, {.x = x.view(), .gate = gate.view(), .out = out.view()});
  for (int64_t i = 0; i < count; ++i) {
    const double expected = 1.0 / (1.0 + std::exp(-static_cast<double>(gate.get(0, i))));
    // e^89 overflows, so the smallest values become zero; those of bf16 are rounded to 2^-8.
    EXPECT_NEAR(out.get(0, i), expected, 4e-38 + expected * (is_f32() ? 5e-7 : 0.00393)) << "gate " << gate.get(0, i);
  }
}

TEST_P(ElementwiseTest, SigmoidOfSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  TestMatrix x = TestMatrix(dtype(), 1, 4).fill(2.0f);
  TestMatrix gate(dtype(), 1, 4), out(dtype(), 1, 4);
  const float gates[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f};
  for (int64_t i = 0; i < 4; ++i) gate.set(0, i, gates[i]);
  table().sigmoid_gate(stream_, {.x = x.view(), .gate = gate.view(), .out = out.view()});
  EXPECT_EQ(out.get(0, 0), 2.0f);
  EXPECT_EQ(out.get(0, 1), 0.0f);
  EXPECT_TRUE(std::isnan(out.get(0, 2)));
  EXPECT_EQ(out.get(0, 3), 1.0f);
}

TEST_P(ElementwiseTest, SwigluLikeRef) {
  for (const Shape& shape : kShapes) {
    const TestMatrix gate_up = TestMatrix(dtype(), shape.rows, 2 * shape.cols, 1).fill_random(5, 3.0f);
    expect_like_ref(table(), dtype(), shape, stream_, serial_stream_, [&](const OpTable& ops, Stream& stream, MatrixView out) {
      ops.swiglu(stream, {.gate_up = gate_up.view(), .out = out});
    });
  }
}

TEST_P(ElementwiseTest, SwigluIsTheFormula) {
  const int64_t cols = 37;
  const TestMatrix gate_up = TestMatrix(dtype(), 2, 2 * cols).fill_random(6, 2.0f);
  TestMatrix out(dtype(), 2, cols);
  table().swiglu(stream_, {.gate_up = gate_up.view(), .out = out.view()});
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double gate = gate_up.get(r, c);
      const double expected = nearest(dtype(), nearest(dtype(), gate / (1.0 + std::exp(-gate))) * gate_up.get(r, cols + c));
      EXPECT_NEAR(out.get(r, c), expected, 1e-6 * std::abs(expected)) << r << ", " << c;
    }
  }
}

TEST_P(ElementwiseTest, SharedExpertMergeLikeRef) {
  for (const Shape& shape : kShapes) {
    const TestMatrix routed = TestMatrix(dtype(), shape.rows, shape.cols, 2).fill_random(7);
    const TestMatrix shared = TestMatrix(dtype(), shape.rows, shape.cols, 7).fill_random(8);
    const TestMatrix gate = TestMatrix(dtype(), shape.rows, 1, 4).fill_random(9);
    expect_like_ref(table(), dtype(), shape, stream_, serial_stream_, [&](const OpTable& ops, Stream& stream, MatrixView out) {
      ops.shared_expert_merge(stream, {.routed = routed.view(), .shared = shared.view(), .gate = gate.view(), .out = out});
    });
  }
}

TEST_P(ElementwiseTest, SharedExpertMergeIsTheFormula) {
  const int64_t cols = 21;
  TestMatrix routed = TestMatrix(dtype(), 2, cols).fill_random(10);
  const TestMatrix original = routed;
  const TestMatrix shared = TestMatrix(dtype(), 2, cols).fill_random(11);
  const TestMatrix gate = TestMatrix(dtype(), 2, 1).fill_random(12);
  table().shared_expert_merge(stream_,
                              {.routed = routed.view(), .shared = shared.view(), .gate = gate.view(), .out = routed.view()});
  for (int64_t r = 0; r < 2; ++r) {
    const double weight = nearest(dtype(), 1.0 / (1.0 + std::exp(-static_cast<double>(gate.get(r, 0)))));
    for (int64_t c = 0; c < cols; ++c) {
      const double expected = nearest(dtype(), original.get(r, c) + nearest(dtype(), weight * shared.get(r, c)));
      EXPECT_NEAR(routed.get(r, c), expected, 1e-6);
    }
  }
}

// The two vector builds do the same arithmetic: same bits.
TEST(ElementwiseTables, VectorBuildsGiveTheSameBits) {
  test::TestStream stream(2);
  std::vector<TestMatrix> results;
  const TestMatrix gate_up = TestMatrix(DType::kF32, 9, 2 * 517).fill_random(13, 5.0f);
  for (const OpTable* table : available_op_tables()) {
    if (std::string_view(table->name) == "ref") continue;
    results.emplace_back(DType::kF32, 9, 517);
    table->swiglu(stream, {.gate_up = gate_up.view(), .out = results.back().view()});
  }
  for (const TestMatrix& result : results) EXPECT_TRUE(all_close(result.view(), results.front().view(), kExact));
}

}  // namespace
}  // namespace ferry::test
