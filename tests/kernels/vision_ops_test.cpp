#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draws.h"
#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

class VisionOpsTest : public OpTest {
 protected:
  Tolerance tolerance() const { return is_f32() ? Tolerance{2e-6, 3e-6} : Tolerance{1e-30, 0.0079, 0.02}; }
};
INSTANTIATE_TEST_SUITE_P(Tables, VisionOpsTest, testing::ValuesIn(op_cases()), op_case_name);

TEST_P(VisionOpsTest, LayerNormIsTheFormula) {
  const float eps = 0.125f;  // large, so that a forgotten eps shows
  for (const int64_t cols : {1, 15, 48, 83, 1152}) {
    TestMatrix x = TestMatrix(dtype(), 41, cols, 3).fill_random(3);
    for (int64_t r = 0; r < x.view().rows; ++r) x.set(r, 0, x.get(r, 0) + 3.0f);  // a mean that matters
    const std::vector<float> weight = random_floats(static_cast<std::size_t>(cols), 4),
                             bias = random_floats(static_cast<std::size_t>(cols), 5);
    TestMatrix out(dtype(), 41, cols, 2), serial(dtype(), 41, cols);
    table().layer_norm(stream_, {.x = x.view(), .weight = weight.data(), .bias = bias.data(), .eps = eps, .out = out.view()});
    table().layer_norm(serial_stream_,
                       {.x = x.view(), .weight = weight.data(), .bias = bias.data(), .eps = eps, .out = serial.view()});
    EXPECT_TRUE(all_close(out.view(), serial.view(), kExact));
    EXPECT_TRUE(out.padding_intact());
    for (int64_t r = 0; r < 41; ++r) {
      double mean = 0.0, squares = 0.0;
      for (int64_t c = 0; c < cols; ++c) mean += x.get(r, c) / static_cast<double>(cols);
      for (int64_t c = 0; c < cols; ++c) squares += std::pow(x.get(r, c) - mean, 2) / static_cast<double>(cols);
      for (int64_t c = 0; c < cols; ++c) {
        const auto i = static_cast<std::size_t>(c);
        const double expected = (x.get(r, c) - mean) / std::sqrt(squares + eps) * weight[i] + bias[i];
        EXPECT_NEAR(out.get(r, c), expected, 4e-6 + std::abs(expected) * (is_f32() ? 1e-6 : 0.0040)) << r << ", " << c;
      }
    }
  }
}

TEST_P(VisionOpsTest, AddBiasIsTheFormula) {
  const int64_t rows = 37, cols = 67;
  const TestMatrix x = TestMatrix(dtype(), rows, cols, 1).fill_random(1, 2.0f);
  const TestMatrix residual = TestMatrix(dtype(), rows, cols).fill_random(2);
  const std::vector<float> bias = random_floats(static_cast<std::size_t>(cols), 3);
  const auto activate = [](BiasActivation activation, double y) {
    if (activation == BiasActivation::kGelu) return y / 2 * (1 + std::erf(y / std::sqrt(2.0)));
    if (activation == BiasActivation::kNone) return y;
    return y / 2 * (1 + std::tanh(std::sqrt(2.0 / M_PI) * (y + 0.044715 * y * y * y)));
  };
  for (const BiasActivation activation : {BiasActivation::kNone, BiasActivation::kGeluTanh, BiasActivation::kGelu}) {
    TestMatrix out(dtype(), rows, cols, 2);
    table().add_bias(stream_, {.x = x.view(), .bias = bias.data(), .activation = activation, .out = out.view()});
    EXPECT_TRUE(out.padding_intact());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const double y = nearest(dtype(), x.get(r, c) + bias[static_cast<std::size_t>(c)]);
        const double expected = activate(activation, y);
        EXPECT_NEAR(out.get(r, c), expected, 1e-6 + std::abs(expected) * (is_f32() ? 2e-6 : 0.0040)) << r << ", " << c;
      }
    }
  }
  TestMatrix sum = residual, expected(dtype(), rows, cols);
  table().add_bias(stream_, {.x = x.view(), .bias = bias.data(), .residual = sum.view(), .out = sum.view()});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double y = nearest(dtype(), x.get(r, c) + bias[static_cast<std::size_t>(c)]);
      expected.set(r, c, static_cast<float>(residual.get(r, c) + y));
    }
  }
  EXPECT_TRUE(all_close(sum.view(), expected.view(), tolerance()));
}

TEST_P(VisionOpsTest, RopeRotatesWholeHeadsWithOneRounding) {
  const int64_t rows = 9, head_dim = 44, half = head_dim / 2, num_heads = 3;
  const TestMatrix before = TestMatrix(dtype(), rows, head_dim * num_heads, 5).fill_random(8);
  std::vector<float> cos, sin;
  for (int64_t i = 0; i < rows * half; ++i) {
    cos.push_back(std::cos(0.37f * static_cast<float>(i)));
    sin.push_back(std::sin(0.37f * static_cast<float>(i)));
  }
  TestMatrix x = before;
  table().vision_rope(stream_, {.x = x.view(), .head_dim = head_dim, .cos = cos.data(), .sin = sin.data()});
  EXPECT_TRUE(x.padding_intact());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < half * num_heads; ++i) {
      const int64_t j = i % half, at = i / half * head_dim + j;
      const double c = cos[static_cast<std::size_t>(r * half + j)], s = sin[static_cast<std::size_t>(r * half + j)];
      const double lower = before.get(r, at), upper = before.get(r, at + half), slack = is_f32() ? 1e-6 : 0.0040;
      EXPECT_NEAR(x.get(r, at), lower * c - upper * s, 1e-6 + std::abs(lower * c - upper * s) * slack);
      EXPECT_NEAR(x.get(r, at + half), upper * c + lower * s, 1e-6 + std::abs(upper * c + lower * s) * slack);
    }
  }
}

/// What attends within segments to rows of `dtype`: the vector tables, and the units that multiply bf16.
std::vector<const OpTable*> attending_tables(DType dtype) {
  std::vector<const OpTable*> tables = vector_op_tables();
  if (dtype != DType::kBF16) return tables;
  std::ranges::copy(available_unit_tables(), std::back_inserter(tables));
  return tables;
}

struct Scene {
  int64_t num_heads, head_dim;
  std::vector<int64_t> ends;
  Matrix qkv;

  Scene(DType dtype, int64_t heads, int64_t dim, std::vector<int64_t> segment_ends, float scale = 1.0f)
      : num_heads(heads),
        head_dim(dim),
        ends(std::move(segment_ends)),
        qkv(random_matrix(dtype, ends.back(), 3 * heads * dim, 7, scale)) {}

  Matrix run(const OpTable& table, int num_threads) const {
    test::TestStream stream(num_threads);
    const int64_t cols = num_heads * head_dim;
    Matrix out(qkv.dtype(), qkv.rows(), cols);
    table.segment_attention(stream, {.q = qkv.view().cols_from(0, cols),
                                     .k = qkv.view().cols_from(cols, cols),
                                     .v = qkv.view().cols_from(2 * cols, cols),
                                     .segment_ends = ends,
                                     .num_heads = num_heads,
                                     .out = out.view()});
    return out;
  }
  std::string text() const { return std::to_string(num_heads) + " heads of " + std::to_string(head_dim); }
};

TEST(SegmentAttention, EqualsReference) {
  using Ends = std::vector<int64_t>;
  const auto segments = test::draws(Ends{1, 5, 5, 70, 334, 667}, Ends{1, 5, 5, 70, 170});
  for (const DType dtype : kBothDTypes) {
    for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{4, 12}, {2, 72}, {3, 64}, {1, 33}, {2, 128}, {1, 256}}) {
      const Scene scene(dtype, heads, dim, segments);
      const Matrix expected = scene.run(ref::kOpTable, 1);
      for (const OpTable* table : attending_tables(dtype)) {
        // Weights of 8 bits: each product is off by up to 2^-9 of itself.
        const bool is_unit = !table->embed.takes({});
        const float relative = is_unit ? 2e-3f : 5e-6f;
        expect_close(expected.view(), scene.run(*table, 2).view(), relative,
                     std::string(table->name) + " " + dtype_name(dtype) + " " + scene.text());
      }
    }
  }
}

TEST(SegmentAttention, LargeScoresStayFinite) {
  for (const DType dtype : kBothDTypes) {
    const Scene scene(dtype, 2, 24, {300}, 30.0f);
    const Matrix expected = scene.run(ref::kOpTable, 1);
    for (const OpTable* table : attending_tables(dtype)) {
      expect_close(expected.view(), scene.run(*table, 1).view(), dtype == DType::kF32 ? 1e-3f : 5e-3f, table->name);
    }
  }
}

TEST(SegmentAttention, ResultsDoNotDependOnThreadsOrOtherSegments) {
  for (const DType dtype : kBothDTypes) {
    const Scene scene(dtype, 2, 72, {65, 66, 600, 937});
    for (const OpTable* table : attending_tables(dtype)) {
      const Matrix together = scene.run(*table, 3), serial = scene.run(*table, 1);
      EXPECT_TRUE(all_close(together.view(), serial.view(), kExact)) << table->name;
      Scene alone(dtype, 2, 72, {337});
      const std::byte* last = scene.qkv.view().row_bytes(600);
      std::memcpy(alone.qkv.view().data, last, static_cast<std::size_t>(337 * 3 * 2 * 72 * dtype_bytes(dtype)));
      EXPECT_TRUE(all_close(together.view().rows_from(600, 337), alone.run(*table, 2).view(), kExact)) << table->name;
    }
  }
}

TEST(SegmentAttention, ANaNStaysInItsSegmentAndHead) {
  for (const DType dtype : kBothDTypes) {
    Scene scene(dtype, 2, 24, {40, 100});
    set_element(scene.qkv.view(), 50, 3, std::numeric_limits<float>::quiet_NaN());  // a query of the first head
    for (const OpTable* table : attending_tables(dtype)) {
      const Matrix out = scene.run(*table, 2);
      for (int64_t r = 0; r < 100; ++r) {
        for (int64_t c = 0; c < 48; ++c) {
          EXPECT_EQ(r == 50 && c < 24, std::isnan(element(out.view(), r, c))) << table->name << " " << r << ", " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry::test
