#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/int4_search.h"
#include "kernels/cpu_features.h"
#include "runtime/base/error.h"
#include "tests/kernels/matrices.h"
#include "tests/support/expect_error.h"
#include "tests/support/quantized_rows.h"

namespace ferry {
namespace {

constexpr WeightType kInt8{WeightFormat::kInt8, 0};

double square_error(const Matrix& w, const QuantizedMatrix& q) {
  double sum = 0;
  for (int64_t r = 0; r < w.rows(); ++r) {
    for (int64_t c = 0; c < w.cols(); ++c) sum += std::pow(element(w.view(), r, c) - q.value(r, c), 2);
  }
  return sum;
}

TEST(QuantizeWeights, Int8IsWithinHalfAStep) {
  const Matrix w = random_matrix(DType::kBF16, 20, 131, 1);
  const QuantizedMatrix q = quantize_weights(w.view(), kInt8);
  for (int64_t r = 0; r < 20; ++r) {
    const float step = q.scales[static_cast<std::size_t>(r)];
    for (int64_t c = 0; c < 131; ++c) EXPECT_LE(std::abs(element(w.view(), r, c) - q.value(r, c)), 0.501F * step);
  }
}

/// The plain way: the range of the group cut into 15 steps.
double range_error(const Matrix& w, int64_t group) {
  double sum = 0;
  for (int64_t r = 0; r < w.rows(); ++r) {
    for (int64_t g = 0; g < w.cols(); g += group) {
      float low = 0, high = 0;
      for (int64_t c = g; c < g + group; ++c) {
        low = std::min(low, element(w.view(), r, c));
        high = std::max(high, element(w.view(), r, c));
      }
      const float scale = (high - low) / 15, zero = std::nearbyint(-low / scale);
      for (int64_t c = g; c < g + group; ++c) {
        const float x = element(w.view(), r, c);
        sum += std::pow(x - scale * (std::clamp(std::nearbyint(x / scale) + zero, 0.0F, 15.0F) - zero), 2);
      }
    }
  }
  return sum;
}

TEST(QuantizeWeights, Int4BeatsThePlainRange) {
  for (const int64_t group : {32, 64, 128, 256}) {
    Matrix w = random_matrix(DType::kF32, 30, 512, 2, 0.05F);
    for (int64_t r = 0; r < 30; ++r) set_element(w.view(), r, 17 * r % 512, 0.4F);  // outliers
    const QuantizedMatrix q = quantize_weights(w.view(), {WeightFormat::kInt4, static_cast<int32_t>(group)});
    EXPECT_LT(square_error(w, q), 0.97 * range_error(w, group)) << "groups of " << group;
  }
}

TEST(QuantizeWeights, ThreadsFindTheSameCodes) {
  const Matrix w = random_matrix(DType::kBF16, 2500, 64, 3);
  ThreadPool pool(3);
  for (const WeightType type : {kInt8, WeightType{WeightFormat::kInt4, 32}}) {
    const QuantizedMatrix alone = quantize_weights(w.view(), type), shared = quantize_weights(w.view(), type, &pool);
    EXPECT_EQ(alone.codes, shared.codes);
    EXPECT_EQ(alone.scales, shared.scales);
    EXPECT_EQ(alone.zero_points, shared.zero_points);
  }
  Matrix broken = random_matrix(DType::kBF16, 2500, 64, 3);
  set_element(broken.view(), 2400, 5, std::numeric_limits<float>::infinity());
  test::expect_error([&] { quantize_weights(broken.view(), kInt8, &pool); }, ErrorCode::kInvalidArgument,
                     {"row 2400", "column 5"});
}

TEST(QuantizeWeights, Int4IsExactOnItsOwnGrid) {
  Matrix w(DType::kF32, 3, 64);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 64; ++c) set_element(w.view(), r, c, 0.25F * static_cast<float>((c * 7 + r) % 16 - 4 * r));
  }
  const QuantizedMatrix q = quantize_weights(w.view(), {WeightFormat::kInt4, 32});
  EXPECT_EQ(square_error(w, q), 0.0);
}

TEST(QuantizeWeights, Int4ScalesWithTheWeights) {
  const Matrix w = random_matrix(DType::kF32, 4, 128, 7);
  const QuantizedMatrix expected = quantize_weights(w.view(), {WeightFormat::kInt4, 64});
  for (const int exponent : {-110, -60, -20, 1, 60, 120}) {
    Matrix scaled = random_matrix(DType::kF32, 4, 128, 7);
    for (int64_t i = 0; i < 4 * 128; ++i) scaled.view().row<float>(0)[i] = std::ldexp(scaled.view().row<float>(0)[i], exponent);
    const QuantizedMatrix q = quantize_weights(scaled.view(), {WeightFormat::kInt4, 64});
    EXPECT_EQ(q.codes, expected.codes) << "2^" << exponent;
    EXPECT_EQ(q.zero_points, expected.zero_points);
    for (std::size_t g = 0; g < q.scales.size(); ++g) EXPECT_EQ(q.scales[g], std::ldexp(expected.scales[g], exponent));
  }
}

TEST(QuantizeWeights, EveryBuildOfTheSearchFindsTheSameCodes) {
  std::vector<Int4Search> searches = {cpu_generic::search_int4};
  if (has_avx2()) searches.push_back(cpu_avx2::search_int4);
  if (has_avx512()) searches.push_back(cpu_avx512::search_int4);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const int64_t count = 32 << (seed % 4);
    const Matrix w = random_matrix(DType::kF32, 1, count, seed);
    std::vector<uint8_t> expected(static_cast<std::size_t>(count));
    float scale;
    uint8_t zero;
    searches.front()(w.view().row<float>(0), count, expected.data(), scale, zero);
    for (const Int4Search search : searches) {
      std::vector<uint8_t> codes(expected.size());
      float other_scale;
      uint8_t other_zero;
      search(w.view().row<float>(0), count, codes.data(), other_scale, other_zero);
      EXPECT_EQ(codes, expected) << "seed " << seed;
      EXPECT_EQ(other_scale, scale);
      EXPECT_EQ(other_zero, zero);
    }
  }
}

TEST(QuantizeWeights, Errors) {
  const Matrix w = random_matrix(DType::kBF16, 2, 96, 3);
  test::expect_error(
      [&] {
        quantize_weights(w.view(), {WeightFormat::kInt4, 64});
      },
      ErrorCode::kInvalidArgument, {"96", "groups of 64", "w8a8"});
  test::expect_error(
      [] {
        check_quantizable(192, {WeightFormat::kInt4, 128, true});
      },
      ErrorCode::kInvalidArgument, {"192", "groups of 128", "--quantize none or w8a8"});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Matrix broken = random_matrix(DType::kBF16, 3, 32, 4);
    set_element(broken.view(), 1, 30, bad);
    for (const WeightType type : {kInt8, WeightType{WeightFormat::kInt4, 32}}) {
      test::expect_error([&] { quantize_weights(broken.view(), type); }, ErrorCode::kInvalidArgument,
                         {"row 1, column 30", "finite"});
    }
  }
}

/// Leaves nothing that happens to be right.
void fill_codes(Matrix& codes) {
  for (int64_t r = 0; r < codes.rows(); ++r) std::fill_n(codes.view().row<int8_t>(r), codes.cols(), int8_t{77});
}

TEST(QuantizeRows, EveryImplementationGivesTheSameCodes) {
  test::TestStream stream(2);
  for (const DType dtype : kBothDTypes) {
    for (const int64_t cols : {1, 15, 16, 63, 64, 100, 192}) {
      Matrix x = random_matrix(dtype, 9, cols, 5);
      set_element(x.view(), 2, cols - 1, std::numeric_limits<float>::quiet_NaN());
      set_element(x.view(), 3, 0, -std::numeric_limits<float>::infinity());
      for (int64_t c = 0; c < cols; ++c) set_element(x.view(), 4, c, 0.0F);
      QuantizedRows expected(9, cols);
      select_op_table("ref").quantize_rows(stream,
                                           {.x = x.view(), .codes = expected.values.view(), .scales = expected.scales.data()});
      EXPECT_TRUE(std::isnan(expected.scales[2]) && std::isnan(expected.scales[3]));
      EXPECT_EQ(expected.scales[4], 0.0F);
      for (const OpTable* table : vector_op_tables()) {
        QuantizedRows got(9, cols);
        fill_codes(got.values);
        table->quantize_rows(stream, {.x = x.view(), .codes = got.values.view(), .scales = got.scales.data()});
        for (int64_t r = 0; r < 9; ++r) {
          const auto at = static_cast<std::size_t>(r);
          EXPECT_TRUE(got.scales[at] == expected.scales[at] || std::isnan(expected.scales[at])) << r;
          for (int64_t c = 0; c < quantized_cols(cols); ++c) {
            EXPECT_EQ(got.values.view().row<int8_t>(r)[c], expected.values.view().row<int8_t>(r)[c])
                << table->name << " row " << r << " column " << c << " of " << cols;
          }
        }
      }
    }
  }
}

TEST(WeightFormat, NamesAreReadBack) {
  for (const WeightType type : {kInt8, WeightType{WeightFormat::kInt4, 32}, WeightType{WeightFormat::kInt4, 256},
                                WeightType{WeightFormat::kInt4, 128, true}, WeightType{WeightFormat::kE4M3, 128}}) {
    EXPECT_EQ(parse_quantized_type(weight_type_name(type)), type);
  }
  EXPECT_EQ(parse_quantized_type("w4a8"), (WeightType{WeightFormat::kInt4, 0}));
  for (const char* text : {"", "w8", "w8a8:64", "w4a8:", "w4a8:48", "w4a8:64x", "w4a8:-32", "bf16", "e4m3", "e4m3:48",
                           "e4m3:64:wide", "w4a8:wide"}) {
    EXPECT_FALSE(parse_quantized_type(text)) << text;
  }
}

}  // namespace
}  // namespace ferry
