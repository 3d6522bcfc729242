#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "tests/kernels/matrices.h"
#include "tests/support/op_test.h"

namespace ferry {
namespace {

struct Shape {
  int64_t rows, n, k;
  std::string text() const { return std::to_string(rows) + " x " + std::to_string(n) + " x " + std::to_string(k); }
};

/// Runs once per dtype; skipped where oneDNN has no product for it.
class OnednnMatmul : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    backend_ = make_onednn_matmul(GetParam());
    if (backend_ == nullptr) GTEST_SKIP() << "oneDNN does not multiply " << dtype_name(GetParam()) << " on this processor";
  }
  Matrix multiply(ConstMatrixView x, const PackedMatrix& weights, int num_threads) {
    test::TestStream stream(num_threads);
    Matrix out(x.dtype, x.rows, weights.n());
    backend_->matmul(stream, {x}, weights, out.view());
    return out;
  }

  std::unique_ptr<Matmul> backend_;
};
INSTANTIATE_TEST_SUITE_P(Both, OnednnMatmul, testing::ValuesIn(kBothDTypes),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

/// Its products are rounded before the bias is added, and the residual may lie where the result goes.
TEST_P(OnednnMatmul, FinishesWithABias) {
  const Matrix x = random_matrix(GetParam(), 33, 40, 1), w = random_matrix(GetParam(), 70, 40, 2, 0.3F);
  const Matrix bias = random_matrix(DType::kF32, 1, 70, 4);
  const auto packed = backend_->pack(w.view());
  const Matrix products = multiply(x.view(), *packed, 1);
  test::TestStream stream(2);
  for (const BiasActivation activation : {BiasActivation::kNone, BiasActivation::kGeluTanh, BiasActivation::kGelu}) {
    for (const bool adds : {false, true}) {
      if (adds && activation != BiasActivation::kNone) continue;
      Matrix expected = random_matrix(GetParam(), 33, 70, 3), out = random_matrix(GetParam(), 33, 70, 3);
      AddBiasArgs args{
          .x = products.view(), .bias = bias.view().row<float>(0), .activation = activation, .out = expected.view()};
      ProductFinish finish{.bias = bias.view().row<float>(0), .activation = activation};
      if (adds) args.residual = expected.view(), finish.residual = out.view();
      select_op_table("auto").add_bias(stream, args);
      backend_->matmul(stream, {x.view()}, *packed, out.view(), finish);
      expect_same_bits(expected.view(), out.view(), "activation " + std::to_string(static_cast<int>(activation)));
    }
  }
}

TEST_P(OnednnMatmul, EqualsReferenceAtOddSizes) {
  const auto ref = make_ref_matmul();
  for (const Shape shape :
       {Shape{1, 1, 1}, Shape{1, 31, 6}, Shape{7, 33, 77}, Shape{3, 77, 1}, Shape{65, 100, 257}, Shape{130, 40, 515},
        Shape{9, 600, 31}, Shape{50, 257, 72}, Shape{11, 80, 63}, Shape{67, 208, 63}, Shape{5, 600, 63}}) {
    test::TestMatrix x(GetParam(), shape.rows, shape.k, 5);
    test::TestMatrix w(GetParam(), shape.n, shape.k, 3);
    x.fill_random(1);
    w.fill_random(2);
    test::TestStream stream(2);
    Matrix expected(GetParam(), shape.rows, shape.n);
    ref->matmul(stream, {x.view()}, *ref->pack(w.view()), expected.view());
    const auto packed = backend_->pack(w.view());
    EXPECT_EQ(packed->n(), shape.n);
    EXPECT_EQ(packed->k(), shape.k);
    EXPECT_EQ(packed->type(), plain_weights(GetParam()));
    EXPECT_GE(packed->packed_bytes(), shape.n * shape.k * dtype_bytes(GetParam()));
    test::TestMatrix out(GetParam(), shape.rows, shape.n, 4);
    backend_->matmul(stream, {x.view()}, *packed, out.view());
    expect_close(expected.view(), out.view(), 2e-6F, shape.text());
    EXPECT_TRUE(out.padding_intact()) << shape.text() << ": wrote between the rows";
  }
}

TEST_P(OnednnMatmul, RowDoesNotDependOnBatchPositionOrThreads) {
  constexpr int64_t kRows = 200;
  // One slab of one column, slabs of uneven width, and a k that no block size divides.
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 72}, {77, 131}, {300, 515}}) {
    const Matrix x = random_matrix(GetParam(), kRows, k, 3);
    const auto packed = backend_->pack(random_matrix(GetParam(), n, k, 4).view());
    const Matrix whole = multiply(x.view(), *packed, 1);
    for (const int num_threads : {2, 5})
      expect_same_bits(whole.view(), multiply(x.view(), *packed, num_threads).view(), "threads");
    for (int64_t count = 1; count <= kRows; ++count) {
      const int64_t first = (count * 13) % (kRows - count + 1);
      expect_same_bits(whole.view().rows_from(first, count), multiply(x.view().rows_from(first, count), *packed, 1).view(),
                       "n " + std::to_string(n) + " batch of " + std::to_string(count));
    }
    for (int64_t r = 0; r < kRows; r += 7) {
      expect_same_bits(whole.view().rows_from(r, 1), multiply(x.view().rows_from(r, 1), *packed, 1).view(), "alone");
    }
  }
}

TEST_P(OnednnMatmul, GroupsEqualTheirOwnProducts) {
  constexpr int64_t kN = 45, kK = 72;
  const std::vector<int32_t> counts{3, 0, 1, 70, 0, 17, 300, 0};
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::vector<const PackedMatrix*> weights;
  int64_t rows = 0;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    packed.push_back(backend_->pack(random_matrix(GetParam(), kN, kK, static_cast<uint32_t>(g)).view()));
    weights.push_back(counts[g] == 0 && g % 2 == 1 ? nullptr : packed.back().get());
    rows += counts[g];
  }
  const Matrix x = random_matrix(GetParam(), rows, kK, 99);
  Matrix alone(GetParam(), rows, kN);
  int64_t first = 0;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    test::TestStream stream(1);
    backend_->matmul(stream, {x.view().rows_from(first, counts[g])}, *packed[g], alone.view().rows_from(first, counts[g]));
    first += counts[g];
  }
  for (const int num_threads : {1, 3}) {
    test::TestStream stream(num_threads);
    Matrix grouped(GetParam(), rows, kN);
    backend_->grouped_matmul(stream, {.rows = {x.view()}, .counts = counts, .weights = weights, .out = grouped.view()});
    expect_same_bits(alone.view(), grouped.view(), "groups on " + std::to_string(num_threads) + " threads");
  }
}

TEST_P(OnednnMatmul, NothingToDo) {
  test::TestStream stream(2);
  const auto packed = backend_->pack(random_matrix(GetParam(), 33, 20, 1).view());
  Matrix x(GetParam(), 0, 20), out(GetParam(), 0, 33);
  backend_->matmul(stream, {x.view()}, *packed, out.view());
  const std::vector<int32_t> counts{0, 0, 0};
  const std::vector<const PackedMatrix*> weights{nullptr, packed.get(), nullptr};
  backend_->grouped_matmul(stream, {.rows = {x.view()}, .counts = counts, .weights = weights, .out = out.view()});
  backend_->grouped_matmul(stream, {.rows = {x.view()}, .counts = {}, .weights = {}, .out = out.view()});
}

TEST_P(OnednnMatmul, NotANumberStaysInItsRow) {
  test::TestStream stream(2);
  const auto packed = backend_->pack(random_matrix(GetParam(), 40, 24, 1).view());
  Matrix x = random_matrix(GetParam(), 21, 24, 2);
  Matrix clean(GetParam(), 21, 40), out(GetParam(), 21, 40);
  backend_->matmul(stream, {x.view()}, *packed, clean.view());
  set_element(x.view(), 9, 5, std::numeric_limits<float>::quiet_NaN());
  backend_->matmul(stream, {x.view()}, *packed, out.view());
  for (int64_t c = 0; c < 40; ++c) EXPECT_TRUE(std::isnan(element(out.view(), 9, c)));
  expect_same_bits(clean.view().rows_from(0, 9), out.view().rows_from(0, 9), "before");
  expect_same_bits(clean.view().rows_from(10, 11), out.view().rows_from(10, 11), "behind");
}

TEST(OnednnVersion, NamesTheLibrary) { EXPECT_TRUE(onednn_version().starts_with("oneDNN ")) << onednn_version(); }

}  // namespace
}  // namespace ferry
