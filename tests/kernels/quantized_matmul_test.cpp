#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/products.h"

// Products of integer weights: sums of codes are exact, so every kernel must give the bits of the naive product.

namespace ferry {
namespace {

constexpr WeightType kInt8{WeightFormat::kInt8, 0};
constexpr WeightType int4(int32_t group_size) { return {WeightFormat::kInt4, group_size}; }

struct Case {
  WeightType type;
  int64_t n, k;
};
const std::vector<Case> kCases = {{kInt8, 1, 1},        {kInt8, 33, 77},     {kInt8, 100, 256},  {kInt8, 50, 200},
                                  {int4(32), 1, 32},    {int4(32), 70, 96},  {int4(64), 33, 64}, {int4(64), 100, 320},
                                  {int4(128), 40, 256}, {int4(256), 17, 512}};

std::string text(const Case& c) { return weight_type_name(c.type) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k); }

QuantizedMatrix quantized(const Case& c, uint32_t seed) {
  return quantize_weights(random_matrix(DType::kBF16, c.n, c.k, seed, 0.02F).view(), c.type);
}

TEST(QuantizedMatmul, EveryKernelHasTheBitsOfTheReference) {
  const auto ref = make_ref_matmul();
  for (const Case& c : kCases) {
    const QuantizedMatrix w = quantized(c, 3);
    for (const int64_t num_rows : {1, 2, 3, 17, 64, 130}) {
      const CodedRows rows = random_matrix(DType::kBF16, num_rows, c.k, 4);
      for (const DType dtype : kBothDTypes) {
        const Matrix expected = multiply(*ref, rows.view(), *ref->pack(w), dtype);
        for (const auto& backend : all_backends()) {
          const Matrix got = multiply(*backend, rows.view(), *backend->pack(w), dtype, 2);
          expect_same_bits(expected.view(), got.view(),
                           std::string(backend->name()) + " " + text(c) + " rows " + std::to_string(num_rows));
        }
      }
    }
  }
}

TEST(QuantizedMatmul, RowDoesNotDependOnTheBatchOrTheThreads) {
  for (const Case& c : {Case{kInt8, 77, 192}, Case{int4(64), 77, 192}}) {
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
                         std::string(backend->name()) + " " + text(c) + " rows " + std::to_string(count));
      }
    }
  }
}

TEST(QuantizedMatmul, GatedWeightsGiveSwiglu) {
  const auto ref = make_ref_matmul();
  for (const Case& c : {Case{kInt8, 66, 128}, Case{int4(32), 66, 96}}) {
    const QuantizedMatrix w = quantized(c, 7);
    const CodedRows rows = random_matrix(DType::kBF16, 19, c.k, 8);
    const Matrix products = multiply(*ref, rows.view(), *ref->pack(w), DType::kBF16);
    Matrix expected(DType::kBF16, 19, c.n / 2);
    test::TestStream stream(1);
    select_op_table("auto").swiglu(stream, {.gate_up = products.view(), .out = expected.view()});
    for (const auto& backend : all_backends()) {
      const Matrix got = multiply(*backend, rows.view(), *backend->pack(w, WeightUse::kGated), DType::kBF16);
      expect_same_bits(expected.view(), got.view(), std::string(backend->name()) + " " + text(c));
    }
  }
}

TEST(QuantizedMatmul, GroupsEqualTheirOwnProducts) {
  const std::vector<int32_t> counts = {0, 3, 0, 70, 1, 129};
  const int64_t num_rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (const Case& c : {Case{kInt8, 90, 128}, Case{int4(64), 90, 128}}) {
    const CodedRows rows = random_matrix(DType::kBF16, num_rows, c.k, 9);
    for (const auto& backend : all_backends()) {
      std::vector<std::unique_ptr<PackedMatrix>> owners;
      std::vector<const PackedMatrix*> weights;
      for (std::size_t g = 0; g < counts.size(); ++g) {
        owners.push_back(backend->pack(quantized(c, static_cast<uint32_t>(20 + g))));
        weights.push_back(counts[g] == 0 ? nullptr : owners.back().get());
      }
      test::TestStream stream(3);
      Matrix out(DType::kBF16, num_rows, c.n);
      backend->grouped_matmul(stream, {.rows = rows.view(), .counts = counts, .weights = weights, .out = out.view()});
      int64_t first = 0;
      for (std::size_t g = 0; g < counts.size(); first += counts[g++]) {
        if (counts[g] == 0) continue;
        const Matrix single = multiply(*backend, rows.view().rows_from(first, counts[g]), *owners[g], DType::kBF16);
        expect_same_bits(single.view(), out.view().rows_from(first, counts[g]), std::string(backend->name()) + " " + text(c));
      }
    }
  }
}

/// What matmul.h and ops.h promise of extreme values.
TEST(QuantizedMatmul, ExtremeRows) {
  for (const Case& c : {Case{kInt8, 40, 128}, Case{int4(64), 40, 128}}) {
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
