#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/products.h"
#include "tests/support/op_test.h"

namespace ferry {
namespace {

struct Shape {
  int64_t rows, n, k;
  std::string text() const { return std::to_string(rows) + " x " + std::to_string(n) + " x " + std::to_string(k); }
};

Matrix multiply(Matmul& backend, ConstMatrixView x, const PackedMatrix& weights, int num_threads) {
  test::TestStream stream(num_threads);
  Matrix out(x.dtype, x.rows, weights.out_cols());
  backend.matmul(stream, {x}, weights, out.view());
  return out;
}

TEST(CpuMatmul, EqualsReferenceOnStridedViews) {
  const auto ref = make_ref_matmul();
  for (const DType dtype : kBothDTypes) {
    for (const Shape shape : {Shape{1, 1, 1}, Shape{1, 31, 6}, Shape{7, 33, 77}, Shape{64, 32, 16}, Shape{65, 100, 257},
                              Shape{70, 6, 300}, Shape{3, 77, 1}, Shape{130, 40, 515}, Shape{9, 600, 31}}) {
      test::TestMatrix x(dtype, shape.rows, shape.k, 5);
      test::TestMatrix w(dtype, shape.n, shape.k, 3);
      x.fill_random(1);
      w.fill_random(2);
      const Matrix expected = multiply(*ref, x.view(), *ref->pack(w.view()), 1);
      for (const auto& backend : all_backends()) {
        const auto packed = backend->pack(w.view());
        test::TestMatrix out(dtype, shape.rows, shape.n, 4);
        test::TestStream stream(2);
        backend->matmul(stream, {x.view()}, *packed, out.view());
        const std::string what = std::string(backend->name()) + " " + dtype_name(dtype) + " " + shape.text();
        expect_close(expected.view(), out.view(), 2e-6f, what);
        EXPECT_TRUE(out.padding_intact()) << what << ": wrote between the rows";
      }
    }
  }
}

TEST(CpuMatmul, PackedMatrixKnowsItsShape) {
  for (const auto& backend : all_backends()) {
    const Matrix w = random_matrix(DType::kBF16, 33, 7, 1);
    const auto packed = backend->pack(w.view());
    EXPECT_EQ(packed->n(), 33);
    EXPECT_EQ(packed->k(), 7);
    EXPECT_EQ(packed->type(), plain_weights(DType::kBF16));
    EXPECT_EQ(packed->packed_bytes(), 64 * 32 * 2) << "two panels of 32 columns, k padded to 32";
  }
}

TEST(CpuMatmul, RowDoesNotDependOnTheBatch) {
  constexpr int64_t kRows = 70;
  for (const DType dtype : kBothDTypes) {
    const Matrix x = random_matrix(dtype, kRows, 530, 3);
    const Matrix w = random_matrix(dtype, 77, 530, 4);
    for (const auto& backend : all_backends()) {
      const auto packed = backend->pack(w.view());
      const Matrix whole = multiply(*backend, x.view(), *packed, 1);
      for (const int num_threads : {2, 5}) {
        expect_same_bits(whole.view(), multiply(*backend, x.view(), *packed, num_threads).view(), "threads");
      }
      for (int64_t count = 1; count <= kRows; ++count) {
        const int64_t first = (count * 13) % (kRows - count + 1);
        const Matrix part = multiply(*backend, x.view().rows_from(first, count), *packed, 2);
        expect_same_bits(whole.view().rows_from(first, count), part.view(),
                         std::string(backend->name()) + " " + dtype_name(dtype) + " batch of " + std::to_string(count));
      }
      for (int64_t r = 0; r < kRows; ++r) {
        expect_same_bits(whole.view().rows_from(r, 1), multiply(*backend, x.view().rows_from(r, 1), *packed, 1).view(),
                         "alone");
      }
    }
  }
}

TEST(CpuMatmul, NanStaysInItsRow) {
  for (const auto& backend : all_backends()) {
    Matrix x = random_matrix(DType::kF32, 11, 40, 5);
    const auto packed = backend->pack(random_matrix(DType::kF32, 35, 40, 6).view());
    const Matrix clean = multiply(*backend, x.view(), *packed, 1);
    set_element(x.view(), 4, 39, std::numeric_limits<float>::quiet_NaN());
    const Matrix dirty = multiply(*backend, x.view(), *packed, 1);
    expect_same_bits(clean.view().rows_from(0, 4), dirty.view().rows_from(0, 4), "rows above");
    expect_same_bits(clean.view().rows_from(5, 6), dirty.view().rows_from(5, 6), "rows below");
    for (int64_t c = 0; c < 35; ++c) EXPECT_TRUE(std::isnan(element(dirty.view(), 4, c))) << "column " << c;
  }
}

TEST(CpuMatmul, GroupsEqualSingleProducts) {
  const std::vector<int32_t> counts = {0, 3, 0, 70, 1, 0, 129, 0};
  for (const DType dtype : kBothDTypes) {
    const Matrix x = random_matrix(dtype, 203, 37, 7);
    for (const auto& backend : all_backends()) {
      std::vector<std::unique_ptr<PackedMatrix>> owners;
      std::vector<const PackedMatrix*> weights(counts.size(), nullptr);
      for (std::size_t g = 0; g < counts.size(); ++g) {
        if (counts[g] == 0) continue;
        owners.push_back(backend->pack(random_matrix(dtype, 290, 37, static_cast<uint32_t>(100 + g)).view()));
        weights[g] = owners.back().get();
      }
      for (const int num_threads : {1, 2, 5}) {
        test::TestStream stream(num_threads);
        Matrix out(dtype, 203, 290);
        backend->grouped_matmul(stream, {.rows = {x.view()}, .counts = counts, .weights = weights, .out = out.view()});
        int64_t first = 0;
        for (std::size_t g = 0; g < counts.size(); ++g) {
          if (counts[g] == 0) continue;
          const Matrix single = multiply(*backend, x.view().rows_from(first, counts[g]), *weights[g], 1);
          expect_same_bits(single.view(), out.view().rows_from(first, counts[g]),
                           std::string(backend->name()) + " group " + std::to_string(g));
          first += counts[g];
        }
      }
    }
  }
}

TEST(CpuMatmul, NoRowsIsNoWork) {
  for (const auto& backend : all_backends()) {
    test::TestStream stream(2);
    const std::vector<int32_t> counts = {0, 0};
    const std::vector<const PackedMatrix*> weights = {nullptr, nullptr};
    Matrix x(DType::kF32, 1, 8);
    Matrix out(DType::kF32, 1, 9);
    fill(out.view(), 123.0f);
    backend->grouped_matmul(stream, {.rows = {x.top(0)}, .counts = counts, .weights = weights, .out = out.top(0)});
    EXPECT_EQ(element(out.view(), 0, 0), 123.0f);
  }
}

/// f32 products are fused multiply-adds everywhere; bf16 ones where no instruction for bf16 is used.
TEST(CpuMatmul, InstructionSetsThatAddAlikeGiveEqualBits) {
  for (const DType dtype : kBothDTypes) {
    const Matrix x = random_matrix(dtype, 29, 301, 8);
    const Matrix w = random_matrix(dtype, 65, 301, 9);
    const auto baseline = make_cpu_matmul("avx2");
    const Matrix expected = multiply(*baseline, x.view(), *baseline->pack(w.view()), 1);
    for (const auto& backend : all_backends()) {
      const std::string name = backend->name();
      if (dtype == DType::kBF16 && (name == "amx" || name == "avx512_bf16")) continue;
      expect_same_bits(expected.view(), multiply(*backend, x.view(), *backend->pack(w.view()), 1).view(), name);
    }
  }
}

TEST(CpuMatmul, GatedWeightsGiveSwiglu) {
  for (const DType dtype : kBothDTypes) {
    for (const Shape shape : {Shape{1, 2, 5}, Shape{3, 30, 64}, Shape{17, 64, 33}, Shape{40, 202, 96}}) {
      const Matrix x = random_matrix(dtype, shape.rows, shape.k, 11);
      const Matrix w = random_matrix(dtype, shape.n, shape.k, 12, 0.3F);
      for (const auto& backend : all_backends()) {
        const std::string what = std::string(backend->name()) + " " + dtype_name(dtype) + " " + shape.text();
        const Matrix products = multiply(*backend, x.view(), *backend->pack(w.view()), 1);
        Matrix expected(dtype, shape.rows, shape.n / 2);
        test::TestStream stream(1);
        select_op_table("auto").swiglu(stream, {.gate_up = products.view(), .out = expected.view()});
        const auto gated = backend->pack(w.view(), WeightUse::kGated);
        EXPECT_EQ(gated->out_cols(), shape.n / 2);
        expect_same_bits(expected.view(), multiply(*backend, x.view(), *gated, 2).view(), what);
      }
    }
  }
}

TEST(CpuMatmul, FinishesWithABias) {
  const auto ref = make_ref_matmul();
  for (const DType dtype : kBothDTypes) {
    for (const Shape shape : {Shape{1, 1, 8}, Shape{3, 33, 40}, Shape{33, 64, 31}, Shape{70, 100, 64}, Shape{130, 600, 96}}) {
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
        for (const auto& backend : all_backends()) {
          // The residual is where the result goes, as in a stream.
          test::TestMatrix out(dtype, shape.rows, shape.n, 4);
          ProductFinish finish = finishes[f];
          if (finish.residual.data != nullptr) {
            out.fill_random(23);
            finish.residual = out.view();
          }
          backend->matmul(stream, {x.view()}, *backend->pack(w.view()), out.view(), finish);
          const std::string what =
              std::string(backend->name()) + " " + dtype_name(dtype) + " " + shape.text() + " finish " + std::to_string(f);
          expect_close(expected.view(), out.view(), 2e-6f, what);
          EXPECT_TRUE(out.padding_intact()) << what << ": wrote between the rows";
        }
      }
    }
  }
}

TEST(SelectMatmul, NamesAndErrors) {
  const std::vector<std::string> names = cpu_matmul_names();
  for (const std::string& name : names) EXPECT_EQ(std::string(select_matmul(name, DType::kF32)->name()), name);
  if (!names.empty()) {
    EXPECT_EQ(std::string(select_matmul("auto", DType::kBF16)->name()), names.front());
  }
  EXPECT_EQ(std::string(select_matmul("ref", DType::kBF16)->name()), "ref");
  EXPECT_THROW(make_cpu_matmul("sse9"), Error);
  EXPECT_THROW(select_matmul("cpu", DType::kF32), Error);
}

}  // namespace
}  // namespace ferry
