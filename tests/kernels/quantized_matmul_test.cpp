#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/product_cases.h"
#include "tests/kernels/products.h"

// Products of integer weights, beside what product_cases.cpp asks of them.

namespace ferry {
namespace {

QuantizedMatrix quantized(const CodesCase& c, uint32_t seed) {
  return quantize_weights(random_matrix(DType::kBF16, c.n, c.k, seed, 0.02F).view(), c.type);
}

TEST(QuantizedMatmul, RowDoesNotDependOnTheBatchOrTheThreads) {
  for (const CodesCase& c : {CodesCase{kInt8, 77, 192}, CodesCase{int4(64), 77, 192}}) {
    const QuantizedMatrix w = quantized(c, 5);
    const CodedRows rows = random_matrix(DType::kBF16, 1000, c.k, 6);
    for (const auto& backend : all_backends()) {
      const auto packed = backend->pack(w);
      const Matrix whole = multiply(*backend, rows.view(), *packed, DType::kF32, 1);
      for (const int num_threads : {2, 5}) {
        expect_same_bits(whole.view(), multiply(*backend, rows.view(), *packed, DType::kF32, num_threads).view(), "threads");
      }
      for (const int64_t count : {1, 2, 3, 5, 17, 31, 33, 64, 999}) {
        const int64_t first = (count * 13) % (1000 - count + 1);
        expect_same_bits(whole.view().rows_from(first, count),
                         multiply(*backend, rows.view().rows_from(first, count), *packed, DType::kF32, 2).view(),
                         std::string(backend->name()) + " " + c.text() + " rows " + std::to_string(count));
      }
    }
  }
}

TEST(QuantizedMatmul, GatedWeightsGiveSwiglu) {
  const auto ref = make_ref_matmul();
  for (const CodesCase& c : {CodesCase{kInt8, 66, 128}, CodesCase{int4(32), 66, 96}}) {
    const QuantizedMatrix w = quantized(c, 7);
    const CodedRows rows = random_matrix(DType::kBF16, 19, c.k, 8);
    const Matrix products = multiply(*ref, rows.view(), *ref->pack(w), DType::kBF16);
    Matrix expected(DType::kBF16, 19, c.n / 2);
    test::TestStream stream(1);
    select_op_table("auto").swiglu(stream, {.gate_up = products.view(), .out = expected.view()});
    for (const auto& backend : all_backends()) {
      const Matrix got = multiply(*backend, rows.view(), *backend->pack(w, WeightUse::kGated), DType::kBF16);
      expect_same_bits(expected.view(), got.view(), std::string(backend->name()) + " " + c.text());
    }
  }
}

/// What matmul.h and ops.h promise of extreme values.
TEST(QuantizedMatmul, ExtremeRows) {
  for (const CodesCase& c : {CodesCase{kInt8, 40, 128}, CodesCase{int4(64), 40, 128}}) {
    Matrix w = random_matrix(DType::kF32, c.n, c.k, 10);
    for (int64_t k = 0; k < c.k; ++k) {
      set_element(w.view(), 5, k, 0.0F);
      set_element(w.view(), 6, k, 1e-39F);
    }
    Matrix x = random_matrix(DType::kF32, 6, c.k, 11);
    for (int64_t k = 0; k < c.k; ++k) {
      set_element(x.view(), 0, k, 0.0F);
      set_element(x.view(), 1, k, 1e-40F);
    }
    set_element(x.view(), 2, 7, 1e30F);
    set_element(x.view(), 3, 9, std::numeric_limits<float>::quiet_NaN());
    set_element(x.view(), 4, 9, std::numeric_limits<float>::infinity());
    const QuantizedMatrix codes = quantize_weights(w.view(), c.type);
    const CodedRows rows(x);
    for (const auto& backend : all_backends()) {
      const Matrix out = multiply(*backend, rows.view(), *backend->pack(codes), DType::kF32);
      for (int64_t n = 0; n < c.n; ++n) {
        EXPECT_EQ(element(out.view(), 0, n), 0.0F) << "a row of zeros";
        EXPECT_EQ(element(out.view(), 1, n), 0.0F) << "denormals count as zeros";
        EXPECT_FLOAT_EQ(element(out.view(), 2, n), codes.value(n, 7) * 1e30F) << "one huge activation hides the others";
        EXPECT_TRUE(std::isnan(element(out.view(), 3, n)));
        EXPECT_TRUE(std::isnan(element(out.view(), 4, n)));
        EXPECT_TRUE(std::isfinite(element(out.view(), 5, n)));
      }
      EXPECT_EQ(element(out.view(), 5, 5), 0.0F) << "weights of zeros";
      EXPECT_EQ(element(out.view(), 5, 6), 0.0F) << "denormal weights count as zeros";
    }
  }
}

}  // namespace
}  // namespace ferry
