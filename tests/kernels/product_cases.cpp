#include "tests/kernels/product_cases.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/e4m3.h"
#include "tests/kernels/products.h"
#include "tests/support/draws.h"
#include "tests/support/op_test.h"

namespace ferry {

void Multiplier::multiply(const MatmulRows& rows, const PackedMatrix& weights, MatrixView out, const ProductFinish& finish) {
  const auto count = static_cast<int32_t>(rows.x.rows);
  const PackedMatrix* group = &weights;
  run({.rows = rows, .counts = {&count, 1}, .weights = {&group, 1}, .out = out, .finish = finish});
}

Matrix Multiplier::multiply(const MatmulRows& rows, const PackedMatrix& weights, DType dtype) {
  Matrix out(dtype, rows.x.rows, weights.out_cols());
  fill(out.view(), std::numeric_limits<float>::quiet_NaN());
  multiply(rows, weights, out.view());
  return out;
}

QuantizedMatrix random_codes(WeightType type, int64_t n, int64_t k, uint32_t seed) {
  QuantizedMatrix w{.type = type, .n = n, .k = k, .group = type.group_size};
  if (type.format == WeightFormat::kInt8) w.group = k;
  const int mantissa_bits = type.is_wide ? 19 : type.format == WeightFormat::kInt4 ? 4 : 10;
  std::mt19937 generator(seed);
  for (int64_t i = 0; i < n * k; ++i) {
    auto code = static_cast<uint8_t>(generator());
    if (type.format == WeightFormat::kE4M3 && (code & 0x7F) == kE4M3NaN) code = 1;
    if (type.format == WeightFormat::kInt8 && code == 0) code = 1;
    w.codes.push_back(type.format == WeightFormat::kInt4 ? code % 16 : code);
  }
  for (int64_t i = 0; i < n * w.num_groups(); ++i) {
    const uint32_t mantissa = static_cast<uint32_t>(generator()) >> (32 - mantissa_bits) << (23 - mantissa_bits);
    const uint32_t sign = type.is_wide ? static_cast<uint32_t>(generator()) & 0x80000000U : 0;
    w.scales.push_back(generator() % 16 == 0 ? 0.0F : std::bit_cast<float>(sign | uint32_t{119} << 23 | mantissa));
    if (type.format == WeightFormat::kInt4) w.zero_points.push_back(static_cast<uint8_t>(generator() % 16));
    if (type.format == WeightFormat::kInt8) w.zero_points.push_back(128);
  }
  return w;
}

namespace {

class Products : public testing::Test {
 protected:
  void SetUp() override {
    if (multipliers().empty()) GTEST_SKIP() << "nothing here multiplies so";
  }
};

TEST_F(Products, EqualTheReferenceOnStridedViews) {
  const auto ref = make_ref_matmul();
  for (const DType dtype : kBothDTypes) {
    for (const ShapeCase shape :
         {ShapeCase{1, 1, 1}, ShapeCase{1, 31, 6}, ShapeCase{7, 33, 77}, ShapeCase{64, 32, 16}, ShapeCase{65, 100, 257},
          ShapeCase{70, 6, 300}, ShapeCase{3, 77, 1}, ShapeCase{130, 40, 515}, ShapeCase{9, 600, 31}, ShapeCase{17, 33, 1100},
          ShapeCase{2, 64, 2080}, ShapeCase{33, 129, 64}, ShapeCase{129, 257, 96}}) {
      test::TestMatrix x(dtype, shape.rows, shape.k, 5), w(dtype, shape.n, shape.k, 3);
      x.fill_random(1);
      w.fill_random(2);
      const Matrix expected = multiply(*ref, {x.view()}, *ref->pack(w.view()), dtype);
      for (Multiplier* multiplier : multipliers()) {
        test::TestMatrix out(dtype, shape.rows, shape.n, 4);
        multiplier->multiply({x.view()}, *multiplier->pack(w.view()), out.view());
        const std::string what = multiplier->name() + " " + dtype_name(dtype) + " " + shape.text();
        expect_close(expected.view(), out.view(), 2e-6F, what);
        EXPECT_TRUE(out.padding_intact()) << what << ": wrote between the rows";
      }
    }
  }
}

TEST_F(Products, NanStaysInItsRow) {
  for (const DType dtype : kBothDTypes) {
    for (Multiplier* multiplier : multipliers()) {
      Matrix x = random_matrix(dtype, 11, 40, 5);
      const auto packed = multiplier->pack(random_matrix(dtype, 35, 40, 6).view());
      const Matrix clean = multiplier->multiply({x.view()}, *packed, dtype);
      set_element(x.view(), 4, 39, std::numeric_limits<float>::quiet_NaN());
      const Matrix dirty = multiplier->multiply({x.view()}, *packed, dtype);
      expect_same_bits(clean.view().rows_from(0, 4), dirty.view().rows_from(0, 4), "rows above");
      expect_same_bits(clean.view().rows_from(5, 6), dirty.view().rows_from(5, 6), "rows below");
      for (int64_t c = 0; c < 35; ++c) EXPECT_TRUE(std::isnan(element(dirty.view(), 4, c))) << "column " << c;
    }
  }
}

/// Groups of rows of x, whose weights `make` gives by their number.
template <class Make>
void expect_groups_equal_single_products(Multiplier& multiplier, const MatmulRows& x, const std::vector<int32_t>& counts,
                                         DType dtype, const Make& make, const std::string& what) {
  std::vector<std::unique_ptr<PackedMatrix>> owners(counts.size());
  std::vector<const PackedMatrix*> weights(counts.size(), nullptr);
  int64_t num_cols = 0;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    if (counts[g] == 0) continue;
    owners[g] = make(static_cast<uint32_t>(g));
    weights[g] = owners[g].get();
    num_cols = weights[g]->out_cols();
  }
  Matrix out(dtype, x.x.rows, num_cols);
  multiplier.run({.rows = x, .counts = counts, .weights = weights, .out = out.view()});
  int64_t first = 0;
  for (std::size_t g = 0; g < counts.size(); first += counts[g++]) {
    if (counts[g] == 0) continue;
    const Matrix single = multiplier.multiply(x.rows_from(first, counts[g]), *weights[g], dtype);
    expect_same_bits(single.view(), out.view().rows_from(first, counts[g]),
                     multiplier.name() + " " + what + " group " + std::to_string(g));
  }
}

TEST_F(Products, OfGroupsEqualSingleOnes) {
  for (Multiplier* multiplier : multipliers()) {
    for (const DType dtype : kBothDTypes) {
      const Matrix x = random_matrix(dtype, 203, 37, 7);
      expect_groups_equal_single_products(
          *multiplier, {x.view()}, {0, 3, 0, 70, 1, 0, 129, 0}, dtype,
          [&](uint32_t g) { return multiplier->pack(random_matrix(dtype, 290, 37, 100 + g).view()); }, dtype_name(dtype));
    }
    for (const CodesCase& c : {CodesCase{kInt8, 90, 128}, CodesCase{int4(64), 90, 128}, CodesCase{wide(32), 90, 160}}) {
      const CodedRows rows = random_matrix(DType::kBF16, 203, c.k, 9);
      expect_groups_equal_single_products(
          *multiplier, rows.view(), {0, 3, 0, 70, 1, 129}, DType::kBF16,
          [&](uint32_t g) { return multiplier->pack(random_codes(c.type, c.n, c.k, 20 + g)); }, c.text());
    }
  }
}

TEST_F(Products, OfNoRowsAreNoWork) {
  for (Multiplier* multiplier : multipliers()) {
    const std::vector<int32_t> counts = {0, 0};
    const std::vector<const PackedMatrix*> weights = {nullptr, nullptr};
    Matrix x(DType::kF32, 1, 8), out(DType::kF32, 1, 9);
    fill(out.view(), 123.0F);
    multiplier->run({.rows = {x.top(0)}, .counts = counts, .weights = weights, .out = out.top(0)});
    EXPECT_EQ(element(out.view(), 0, 0), 123.0F);
  }
}

TEST_F(Products, FinishWithABias) {
  const auto ref = make_ref_matmul();
  for (const DType dtype : kBothDTypes) {
    for (const ShapeCase shape :
         {ShapeCase{1, 1, 8}, ShapeCase{3, 33, 40}, ShapeCase{33, 64, 31}, ShapeCase{70, 100, 64}, ShapeCase{130, 300, 96}}) {
      const Matrix x = random_matrix(dtype, shape.rows, shape.k, 21), w = random_matrix(dtype, shape.n, shape.k, 22, 0.3F);
      const Matrix residual = random_matrix(dtype, shape.rows, shape.n, 23), bias = random_matrix(DType::kF32, 1, shape.n, 24);
      const float* first = bias.view().row<float>(0);
      const std::vector<ProductFinish> finishes = {{.bias = first},
                                                   {.bias = first, .activation = BiasActivation::kGeluTanh},
                                                   {.bias = first, .activation = BiasActivation::kGelu},
                                                   {.bias = first, .residual = residual.view()}};
      for (std::size_t f = 0; f < finishes.size(); ++f) {
        Matrix expected(dtype, shape.rows, shape.n);
        test::TestStream stream(2);
        ref->matmul(stream, {x.view()}, *ref->pack(w.view()), expected.view(), finishes[f]);
        for (Multiplier* multiplier : multipliers()) {
          // The residual is where the result goes, as in a stream.
          test::TestMatrix out(dtype, shape.rows, shape.n, 4);
          ProductFinish finish = finishes[f];
          if (finish.residual.data != nullptr) {
            out.fill_random(23);
            finish.residual = out.view();
          }
          multiplier->multiply({x.view()}, *multiplier->pack(w.view()), out.view(), finish);
          const std::string what =
              multiplier->name() + " " + dtype_name(dtype) + " " + shape.text() + " finish " + std::to_string(f);
          expect_close(expected.view(), out.view(), 2e-6F, what);
          EXPECT_TRUE(out.padding_intact()) << what << ": wrote between the rows";
        }
      }
    }
  }
}

/// Sums of codes are exact, so every kernel must give the bits of the naive product.
TEST_F(Products, OfIntegersHaveTheBitsOfTheReference) {
  using Rows = std::vector<int64_t>;
  const auto ref = make_ref_matmul();
  for (const CodesCase& c :
       {CodesCase{kInt8, 1, 1}, CodesCase{kInt8, 33, 77}, CodesCase{kInt8, 100, 2100}, CodesCase{kInt8, 50, 200},
        CodesCase{int4(32), 1, 32}, CodesCase{int4(32), 70, 96}, CodesCase{int4(64), 33, 64}, CodesCase{int4(64), 100, 1344},
        CodesCase{int4(128), 40, 256}, CodesCase{int4(256), 17, 5120}, CodesCase{wide(32), 33, 96},
        CodesCase{wide(64), 70, 192}, CodesCase{wide(128), 40, 4096}, CodesCase{wide(256), 17, 512}}) {
    const QuantizedMatrix w = random_codes(c.type, c.n, c.k, 3);
    const auto ref_packed = ref->pack(w);
    for (const int64_t num_rows : test::draws(Rows{1, 2, 3, 7, 16, 17, 50, 130}, Rows{1, 3, 17, 50})) {
      const CodedRows rows = random_matrix(DType::kBF16, num_rows, c.k, 4);
      for (const DType dtype : kBothDTypes) {
        const Matrix expected = multiply(*ref, rows.view(), *ref_packed, dtype);
        for (Multiplier* multiplier : multipliers()) {
          expect_same_bits(expected.view(), multiplier->multiply(rows.view(), *multiplier->pack(w), dtype).view(),
                           multiplier->name() + " " + c.text() + " rows " + std::to_string(num_rows));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry
