#include <gtest/gtest.h>

#include <complex>

#include "tests/support/compare.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

class RopeTest : public OpTest {
 protected:
  /// cos and sin of position * theta^(-2j / rotary_dim), rounded to the dtype.
  void make_angles(int64_t num_tokens, int64_t rotary_dim, int64_t first_position = 0) {
    cos_.clear();
    sin_.clear();
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t j = 0; j < rotary_dim / 2; ++j) {
        const double angle = static_cast<double>(first_position + t) *
                             std::pow(1e4, -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dim));
        const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
        cos_.push_back(is_f32() ? c : round_to<bfloat16>(c));
        sin_.push_back(is_f32() ? s : round_to<bfloat16>(s));
      }
    }
  }
  RopeArgs args(MatrixView x, int64_t head_dim, int64_t rotary_dim) const {
    return {.x = x, .head_dim = head_dim, .rotary_dim = rotary_dim, .cos = cos_.data(), .sin = sin_.data()};
  }

  std::vector<float> cos_, sin_;
};
INSTANTIATE_TEST_SUITE_P(Tables, RopeTest, testing::ValuesIn(op_cases()), op_case_name);

struct RopeShape {
  int64_t num_tokens, num_heads, head_dim, rotary_dim;
};

// Every product and sum is rounded on its own, so that implementations agree to the bit in both dtypes.
TEST_P(RopeTest, EqualsRef) {
  for (const RopeShape& s : {RopeShape{1, 1, 2, 2},
                             {3, 2, 16, 4},
                             {5, 3, 40, 34},
                             {2, 1, 64, 64},
                             {9, 4, 256, 64},
                             {70, 17, 96, 66},
                             {2, 2, 8, 0}}) {
    make_angles(s.num_tokens, s.rotary_dim, 11);
    TestMatrix actual = TestMatrix(dtype(), s.num_tokens, s.num_heads * s.head_dim, 3).fill_random(1);
    TestMatrix expected = actual;
    table().rope(stream_, args(actual.view(), s.head_dim, s.rotary_dim));
    ref::kOpTable.rope(serial_stream_, args(expected.view(), s.head_dim, s.rotary_dim));
    EXPECT_TRUE(all_close(actual.view(), expected.view(), kExact)) << s.head_dim << " " << s.rotary_dim;
    EXPECT_TRUE(actual.padding_intact());
  }
}

// A pair (x_j, x_{j + half}) is a complex number times e^(i angle); what lies behind rotary_dim stays.
TEST_P(RopeTest, IsAComplexRotationOfSplitHalves) {
  const int64_t head_dim = 50, rotary_dim = 42, half = rotary_dim / 2;
  make_angles(4, rotary_dim, 3);
  TestMatrix x = TestMatrix(dtype(), 4, 2 * head_dim).fill_random(2);
  const TestMatrix before = x;
  table().rope(stream_, args(x.view(), head_dim, rotary_dim));
  const double allowed = is_f32() ? 1e-6 : 0.03;  // three roundings of values up to about 4
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t first = 0; first < 2 * head_dim; first += head_dim) {
      for (int64_t j = 0; j < half; ++j) {
        const auto angle_idx = static_cast<std::size_t>(t * half + j);
        const std::complex<double> rotated = std::complex<double>(before.get(t, first + j), before.get(t, first + half + j)) *
                                             std::complex<double>(cos_[angle_idx], sin_[angle_idx]);
        EXPECT_NEAR(x.get(t, first + j), rotated.real(), allowed);
        EXPECT_NEAR(x.get(t, first + half + j), rotated.imag(), allowed);
      }
      for (int64_t j = rotary_dim; j < head_dim; ++j) EXPECT_EQ(x.get(t, first + j), before.get(t, first + j));
    }
  }
}

TEST_P(RopeTest, RoundsEveryProductAndTheSum) {
  make_angles(1, 2);
  cos_[0] = 0.70703125f;  // exact in bf16
  sin_[0] = 0.70703125f;
  TestMatrix x = TestMatrix(dtype(), 1, 2).fill(1.0078125f);
  x.set(0, 1, 0.33398438f);
  const double lower = x.get(0, 0), upper = x.get(0, 1);
  table().rope(stream_, args(x.view(), 2, 2));
  const auto product = [&](double v) { return nearest(dtype(), v * 0.70703125); };
  EXPECT_NEAR(x.get(0, 0), nearest(dtype(), product(lower) - product(upper)), 1e-7);
  EXPECT_NEAR(x.get(0, 1), nearest(dtype(), product(upper) + product(lower)), 1e-7);
}

TEST_P(RopeTest, PositionZeroChangesNothing) {
  make_angles(1, 32);
  TestMatrix x = TestMatrix(dtype(), 1, 3 * 40).fill_random(3);
  const TestMatrix before = x;
  table().rope(stream_, args(x.view(), 40, 32));
  EXPECT_TRUE(all_close(x.view(), before.view(), kExact));
}

}  // namespace
}  // namespace ferry::test
