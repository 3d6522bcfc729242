#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/product_cases.h"
#include "tests/kernels/products.h"

namespace ferry {
namespace {

/// Own kernels, and two threads.
class CpuMultiplier final : public Multiplier {
 public:
  explicit CpuMultiplier(std::unique_ptr<Matmul> matmul) : name_(matmul->name()), matmul_(std::move(matmul)) {}

  const std::string& name() const override { return name_; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use) override { return matmul_->pack(weights, use); }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use) override {
    return matmul_->pack(weights, use);
  }
  void run(const GroupedMatmulArgs& args) override { matmul_->grouped_matmul(stream_, args); }

 private:
  std::string name_;
  std::unique_ptr<Matmul> matmul_;
  test::TestStream stream_{2};
};

Matrix multiply(Matmul& backend, ConstMatrixView x, const PackedMatrix& weights, int num_threads) {
  test::TestStream stream(num_threads);
  Matrix out(x.dtype, x.rows, weights.out_cols());
  backend.matmul(stream, {x}, weights, out.view());
  return out;
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
    for (const ShapeCase shape : {ShapeCase{1, 2, 5}, ShapeCase{3, 30, 64}, ShapeCase{17, 64, 33}, ShapeCase{40, 202, 96}}) {
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

std::vector<Multiplier*> multipliers() {
  static const std::vector<std::unique_ptr<CpuMultiplier>> all = [] {
    std::vector<std::unique_ptr<CpuMultiplier>> made;
    for (const std::string& name : cpu_matmul_names()) made.push_back(std::make_unique<CpuMultiplier>(make_cpu_matmul(name)));
    return made;
  }();
  std::vector<Multiplier*> listed;
  for (const auto& multiplier : all) listed.push_back(multiplier.get());
  return listed;
}

}  // namespace ferry
