#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/e4m3.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/products.h"

// Products of weights in the codes that a checkpoint stores: e4m3, and int4 whose scales need more than five bits.

namespace ferry {
namespace {

constexpr WeightType e4m3(int32_t group_size) { return {WeightFormat::kE4M3, group_size}; }
constexpr WeightType wide(int32_t group_size) { return {WeightFormat::kInt4, group_size, /*is_wide=*/true}; }

/// Random codes of every value, with scales about `scale` that need `mantissa_bits`; some groups are zeros.
QuantizedMatrix random_codes(WeightType type, int64_t n, int64_t k, uint32_t seed, int mantissa_bits = 10) {
  QuantizedMatrix w{.type = type, .n = n, .k = k, .group = type.group_size};
  std::mt19937 generator(seed);
  const bool is_e4m3 = type.format == WeightFormat::kE4M3;
  for (int64_t i = 0; i < n * k; ++i) {
    auto code = static_cast<uint8_t>(generator());
    if (is_e4m3 && (code & 0x7F) == kE4M3NaN) code = 1;
    w.codes.push_back(is_e4m3 ? code : code % 16);
  }
  for (int64_t i = 0; i < n * w.num_groups(); ++i) {
    const uint32_t mantissa = static_cast<uint32_t>(generator()) >> (32 - mantissa_bits) << (23 - mantissa_bits);
    const float scale = std::bit_cast<float>(uint32_t{119} << 23 | mantissa);
    w.scales.push_back(generator() % 16 == 0 ? 0.0F : scale);
    if (!is_e4m3) w.zero_points.push_back(static_cast<uint8_t>(generator() % 16));
  }
  return w;
}

TEST(E4M3, HasTheValuesOfItsSpecification) {
  EXPECT_EQ(e4m3_value(0x00), 0.0F);
  EXPECT_TRUE(std::signbit(e4m3_value(0x80)));
  EXPECT_EQ(e4m3_value(0x01), 0x1p-9F);
  EXPECT_EQ(e4m3_value(0x07), 7 * 0x1p-9F);
  EXPECT_EQ(e4m3_value(0x08), 0x1p-6F);
  EXPECT_EQ(e4m3_value(0x38), 1.0F);
  EXPECT_EQ(e4m3_value(0xB9), -1.125F);
  EXPECT_EQ(e4m3_value(0x7E), 448.0F);
  EXPECT_TRUE(std::isnan(e4m3_value(0x7F)) && std::isnan(e4m3_value(0xFF)));
}

/// A row with a single one picks one weight, which every kernel must hand out exactly.
TEST(StoredCodes, EveryE4M3CodeIsExact) {
  constexpr int64_t kCols = 3, kRows = 256;
  QuantizedMatrix w{.type = e4m3(32), .n = kCols, .k = kRows, .group = 32};
  for (int64_t i = 0; i < kCols * kRows; ++i) {
    const auto code = static_cast<uint8_t>(i % kRows);
    w.codes.push_back((code & 0x7F) == kE4M3NaN ? 0 : code);
  }
  w.scales.assign(static_cast<std::size_t>(kCols * w.num_groups()), 0.0078125F);
  for (const DType dtype : kBothDTypes) {
    Matrix x(dtype, kRows, kRows);
    fill(x.view(), 0.0F);
    for (int64_t i = 0; i < kRows; ++i) set_element(x.view(), i, i, 1.0F);
    for (const auto& backend : all_backends()) {
      const Matrix out = multiply(*backend, {x.view()}, *backend->pack(w), dtype);
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t n = 0; n < kCols; ++n) {
          ASSERT_EQ(element(out.view(), i, n), w.value(n, i)) << backend->name() << " " << dtype_name(dtype) << " code " << i;
        }
      }
    }
  }
}

struct Shape {
  int32_t group_size;
  int64_t n, k;
  std::string text() const {
    return "group " + std::to_string(group_size) + " n " + std::to_string(n) + " k " + std::to_string(k);
  }
};

TEST(StoredCodes, E4M3EqualsTheReferenceAtOddSizes) {
  const auto ref = make_ref_matmul();
  for (const Shape shape : {Shape{32, 1, 1}, Shape{128, 33, 80}, Shape{128, 70, 160}, Shape{64, 100, 257}, Shape{256, 32, 515},
                            Shape{128, 96, 384}}) {
    const QuantizedMatrix w = random_codes(e4m3(shape.group_size), shape.n, shape.k, 3);
    for (const DType dtype : kBothDTypes) {
      for (const int64_t num_rows : {1, 2, 13, 33, 130}) {
        const Matrix x = random_matrix(dtype, num_rows, shape.k, 4);
        const Matrix expected = multiply(*ref, {x.view()}, *ref->pack(w), dtype);
        for (const auto& backend : all_backends()) {
          expect_close(expected.view(), multiply(*backend, {x.view()}, *backend->pack(w), dtype, 2).view(), 3e-6F,
                       std::string(backend->name()) + " " + dtype_name(dtype) + " " + shape.text() + " rows " +
                           std::to_string(num_rows));
        }
      }
    }
  }
}

TEST(StoredCodes, GatedE4M3GivesSwiglu) {
  const QuantizedMatrix w = random_codes(e4m3(128), 66, 160, 7);
  const Matrix x = random_matrix(DType::kBF16, 19, w.k, 8);
  for (const auto& backend : all_backends()) {
    const Matrix products = multiply(*backend, {x.view()}, *backend->pack(w), DType::kBF16);
    Matrix expected(DType::kBF16, 19, w.n / 2);
    test::TestStream stream(1);
    select_op_table("auto").swiglu(stream, {.gate_up = products.view(), .out = expected.view()});
    expect_same_bits(expected.view(), multiply(*backend, {x.view()}, *backend->pack(w, WeightUse::kGated), DType::kBF16).view(),
                     backend->name());
  }
}

TEST(StoredCodes, ARowOfE4M3DoesNotDependOnTheBatchOrTheThreads) {
  const QuantizedMatrix w = random_codes(e4m3(128), 77, 192, 5);
  for (const DType dtype : kBothDTypes) {
    const Matrix x = random_matrix(dtype, 300, w.k, 6);
    const MatmulRows rows{x.view()};
    for (const auto& backend : all_backends()) {
      const auto packed = backend->pack(w);
      const Matrix whole = multiply(*backend, rows, *packed, dtype, 1);
      expect_same_bits(whole.view(), multiply(*backend, rows, *packed, dtype, 5).view(), "threads");
      for (const int64_t count : {1, 2, 5, 17, 31, 33, 64, 299}) {
        const int64_t first = (count * 13) % (300 - count + 1);
        expect_same_bits(whole.view().rows_from(first, count),
                         multiply(*backend, rows.rows_from(first, count), *packed, dtype, 2).view(),
                         std::string(backend->name()) + " rows " + std::to_string(count));
      }
    }
  }
}

TEST(StoredCodes, WideInt4HasTheBitsOfTheReference) {
  const auto ref = make_ref_matmul();
  for (const Shape shape : {Shape{32, 33, 96}, Shape{64, 70, 192}, Shape{128, 100, 256}, Shape{256, 17, 512}}) {
    const QuantizedMatrix w = random_codes(wide(shape.group_size), shape.n, shape.k, 9, 19);
    for (const int64_t num_rows : {1, 3, 17, 40}) {
      const CodedRows rows = random_matrix(DType::kBF16, num_rows, shape.k, 10);
      const MatmulRows view = rows.view();
      const Matrix expected = multiply(*ref, view, *ref->pack(w), DType::kF32);
      for (const auto& backend : all_backends()) {
        expect_same_bits(expected.view(), multiply(*backend, view, *backend->pack(w), DType::kF32, 2).view(),
                         std::string(backend->name()) + " " + shape.text() + " rows " + std::to_string(num_rows));
      }
    }
  }
}

}  // namespace
}  // namespace ferry
