#include "kernels/argmax_screen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/products.h"

namespace ferry {
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kNoBound = std::numeric_limits<float>::infinity();
constexpr int32_t kUntouched = -77;

/// What the whole product and argmax() make of some columns.
std::vector<int32_t> whole_argmax(Matmul& matmul, ConstMatrixView x, const PackedMatrix& weights, int64_t num_cols) {
  test::TestStream stream(1);
  Matrix logits(DType::kBF16, x.rows, weights.n());
  matmul.matmul(stream, {x}, weights, logits.view());
  std::vector<int32_t> rows(static_cast<std::size_t>(x.rows)), ids(rows.size());
  std::iota(rows.begin(), rows.end(), 0);
  argmax(stream, {.x = std::as_const(logits).view().cols_from(0, num_cols), .rows = rows, .ids = ids.data()});
  return ids;
}

/// A screen of one of the own kernels.
struct Screened {
  Screened(const std::string& kernels, ConstMatrixView w, int64_t max_rows, int num_threads = 1)
      : stream(num_threads), pool(num_threads), matmul(make_cpu_matmul(kernels)), weights(matmul->pack(w)) {
    screen = make_argmax_screen(*matmul, *weights, max_rows, pool);
  }
  std::vector<int32_t> argmax(ConstMatrixView x, int64_t num_cols) {
    std::vector<int32_t> rows(static_cast<std::size_t>(x.rows)), ids(rows.size(), kUntouched);
    std::iota(rows.begin(), rows.end(), 0);
    EXPECT_TRUE(screen->argmax(stream, x, num_cols, rows, ids.data()));
    return ids;
  }
  /// The same tokens as the whole product's.
  void expect_exact(ConstMatrixView x, int64_t num_cols, const std::string& what) {
    EXPECT_EQ(argmax(x, num_cols), whole_argmax(*matmul, x, *weights, num_cols)) << what;
  }
  void expect_exact(ConstMatrixView x, const std::string& what) { expect_exact(x, weights->n(), what); }
  /// Of the columns since the last call, the share that was multiplied in bf16.
  double share_in_bf16() {
    const ArgmaxScreen::Count now = screen->count();
    const double share = static_cast<double>(now.in_bf16 - before.in_bf16) / static_cast<double>(now.columns - before.columns);
    before = now;
    return share;
  }

  test::TestStream stream;
  ThreadPool pool;
  std::unique_ptr<Matmul> matmul;
  std::unique_ptr<PackedMatrix> weights;
  std::unique_ptr<ArgmaxScreen> screen;
  ArgmaxScreen::Count before;
};

class ArgmaxScreenTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, ArgmaxScreenTest, testing::ValuesIn(cpu_matmul_names()),
                         [](const auto& kernels) { return kernels.param; });

TEST_P(ArgmaxScreenTest, ChoosesWhatTheWholeProductChooses) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {31, 40}, {33, 64}, {700, 100}, {1100, 256}}) {
    const Matrix w = random_matrix(DType::kBF16, n, k, static_cast<uint32_t>(n), 0.02F);
    Screened screened(GetParam(), w.view(), 40);
    for (const int64_t rows : {1, 2, 6, 7, 40}) {
      const Matrix x = random_matrix(DType::kBF16, rows, k, static_cast<uint32_t>(rows), 3.0F);
      screened.expect_exact(x.view(), std::to_string(n) + " x " + std::to_string(k) + ", rows " + std::to_string(rows));
    }
  }
}

TEST_P(ArgmaxScreenTest, MostColumnsAreOut) {
  const Matrix w = random_matrix(DType::kBF16, 4000, 512, 1, 0.02F);
  Screened screened(GetParam(), w.view(), 16);
  Matrix x(DType::kBF16, 16, 512);  // each row points to a column
  for (int64_t r = 0; r < 16; ++r) {
    for (int64_t i = 0; i < 512; ++i)
      set_element(x.view(), r, i, element(w.view(), 200 * r + 7, i) * 3.0F + (i % 2 == 0 ? 0.01F : -0.01F));
  }
  const std::vector<int32_t> ids = screened.argmax(x.view(), 4000);
  for (int64_t r = 0; r < 16; ++r) EXPECT_EQ(ids[static_cast<std::size_t>(r)], 200 * r + 7);
  EXPECT_LE(screened.share_in_bf16(), 32.0 / 4000);
}

/// Ten values of a row that are much larger than the others: these keep few bits of the first codes.
TEST_P(ArgmaxScreenTest, LargeValuesOfARowTakeSecondCodes) {
  const Matrix w = random_matrix(DType::kBF16, 3000, 512, 3, 0.02F);
  Screened screened(GetParam(), w.view(), 30);
  for (const int64_t rows : {1, 6, 12}) {
    Matrix x = random_matrix(DType::kBF16, rows, 512, static_cast<uint32_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < 10; ++i) set_element(x.view(), r, 50 * i + r, i % 2 == 0 ? 50.0F : -20.0F);
    }
    screened.expect_exact(x.view(), std::to_string(rows) + " rows");
    EXPECT_LT(screened.share_in_bf16(), 0.25) << rows << " rows";
  }
  // Of so many rows with second codes the whole product takes less time.
  Matrix many(DType::kBF16, 30, 512);
  fill(many.view(), 0.3F);  // less than half of what a first code stands for
  for (int64_t r = 0; r < 30; ++r) set_element(many.view(), r, 3, 90.0F);
  std::vector<int32_t> rows(30), ids(30, kUntouched);
  std::iota(rows.begin(), rows.end(), 0);
  EXPECT_FALSE(screened.screen->argmax(screened.stream, many.view(), 3000, rows, ids.data()));
  EXPECT_EQ(ids, std::vector<int32_t>(30, kUntouched));
}

/// Columns that differ by less than the rounding of a result are equal, and the first one wins.
TEST_P(ArgmaxScreenTest, AmongEqualsTheFirstColumn) {
  constexpr int64_t kCols = 500, kWidth = 96;
  Matrix w = random_matrix(DType::kBF16, kCols, kWidth, 5, 0.01F);
  Matrix x(DType::kBF16, 3, kWidth);
  fill(x.view(), 1.0F);
  for (const int64_t col : {499, 300, 77, 76, 33}) {
    for (int64_t i = 0; i < kWidth; ++i) set_element(w.view(), col, i, 1.0F);
  }
  set_element(w.view(), 300, 5, 1.0078125F);  // 96.0078 is rounded to 96
  set_element(w.view(), 33, 5, 0.8984375F);   // 95.898 is rounded to 96, too: bf16 there are 0.5 apart
  Screened screened(GetParam(), w.view(), 3);
  EXPECT_EQ(screened.argmax(x.view(), kCols), (std::vector<int32_t>{33, 33, 33}));
  screened.expect_exact(x.view(), "near ties");
  set_element(w.view(), 33, 5, 0.5F);  // 95.5 is another bf16
  Screened other(GetParam(), w.view(), 3);
  EXPECT_EQ(other.argmax(x.view(), kCols), (std::vector<int32_t>{76, 76, 76}));
}

/// Columns whose products are as far off as bounds allow: all that their codes, or those of the row, leave adds up.
TEST_P(ArgmaxScreenTest, WhatCodesLeaveMayAddUp) {
  constexpr int64_t kWidth = 96;
  Matrix w(DType::kBF16, 200, kWidth), x(DType::kBF16, 8, kWidth);
  for (int64_t i = 0; i < kWidth; ++i) set_element(w.view(), 150, i, i == 0 ? 127.0F : 0.48F);  // codes 127, 0, 0 ...
  for (int64_t i = 0; i < 20; ++i) set_element(w.view(), 40, i, i == 0 ? 127.0F : 1.0F);        // all that they are
  fill(x.view(), 1.0F);
  Screened of_weights(GetParam(), w.view(), 8);
  EXPECT_EQ(of_weights.argmax(x.view(), 200), std::vector<int32_t>(8, 150));
  fill(w.view(), 0.0F);
  for (int64_t i = 1; i < kWidth; ++i) set_element(w.view(), 150, i, 1.0F);
  set_element(w.view(), 40, 0, 0.1F);
  for (int64_t r = 0; r < 8; ++r) {  // of so many rows, none is coarse enough for second codes
    for (int64_t i = 0; i < kWidth; ++i) set_element(x.view(), r, i, i == 0 ? 127.0F : 0.24F);
  }
  Screened of_rows(GetParam(), w.view(), 8);
  EXPECT_EQ(of_rows.argmax(x.view(), 200), std::vector<int32_t>(8, 150));
}

/// Rows of which all products are equal, or nearly so, leave no column out.
TEST_P(ArgmaxScreenTest, RowsOfZerosAndOfDenormals) {
  const Matrix w = random_matrix(DType::kBF16, 300, 64, 6);
  Screened screened(GetParam(), w.view(), 4);
  Matrix x(DType::kBF16, 4, 64);
  for (int64_t i = 0; i < 64; ++i) {
    set_element(x.view(), 1, i, 1e-39F * static_cast<float>(i - 20));
    set_element(x.view(), 2, i, 1e-37F * static_cast<float>(i - 30));
    set_element(x.view(), 3, i, 1e-30F * static_cast<float>(i - 30));
  }
  screened.expect_exact(x.view(), "tiny rows");
  EXPECT_EQ(screened.argmax(x.view().rows_from(0, 1), 300)[0], 0);
}

TEST_P(ArgmaxScreenTest, RowsAndWeightsThatAreNotFinite) {
  Matrix w = random_matrix(DType::kBF16, 400, 80, 7);
  Matrix x = random_matrix(DType::kBF16, 8, 80, 8);
  set_element(x.view(), 1, 7, kNoNumber);
  set_element(x.view(), 2, 7, kNoBound);
  set_element(x.view(), 3, 7, -kNoBound);
  fill(x.view().rows_from(4, 1), 3e38F);  // sums are infinite
  Screened finite(GetParam(), w.view(), 8);
  finite.expect_exact(x.view(), "finite weights");
  EXPECT_EQ(finite.argmax(x.view(), 400)[1], kNoToken);
  set_element(w.view(), 50, 3, kNoNumber);
  set_element(w.view(), 120, 9, kNoBound);
  set_element(w.view(), 121, 9, -kNoBound);
  set_element(w.view(), 122, 9, 3e38F);
  Screened broken(GetParam(), w.view(), 8);
  broken.expect_exact(x.view(), "weights that are not");
  fill(w.view(), kNoNumber);
  Screened hopeless(GetParam(), w.view(), 8);
  EXPECT_EQ(hopeless.argmax(x.view(), 400), std::vector<int32_t>(8, kNoToken));
}

/// Padding is never chosen, and no other row is touched.
TEST_P(ArgmaxScreenTest, OnlyTheFirstColumnsAndSomeRows) {
  Matrix w = random_matrix(DType::kBF16, 130, 64, 9);
  const Matrix x = random_matrix(DType::kBF16, 6, 64, 10);
  for (int64_t col = 70; col < 130; ++col) {
    for (int64_t i = 0; i < 64; ++i) set_element(w.view(), col, i, 100.0F * element(x.view(), col % 6, i));
  }
  Screened screened(GetParam(), w.view(), 6);
  for (const int64_t num_cols : {1, 31, 32, 33, 64, 70, 71, 96, 130}) {
    screened.expect_exact(x.view(), num_cols, std::to_string(num_cols) + " columns");
  }
  const std::vector<int32_t> expected = whole_argmax(*screened.matmul, x.view(), *screened.weights, 70), rows = {4, 1};
  std::vector<int32_t> ids(6, kUntouched);
  EXPECT_TRUE(screened.screen->argmax(screened.stream, x.view(), 70, rows, ids.data()));
  EXPECT_EQ(ids, (std::vector<int32_t>{kUntouched, expected[1], kUntouched, kUntouched, expected[4], kUntouched}));
}

/// Magnitudes of all sizes, in rows, columns and elements; more often than not several columns have the highest value.
TEST_P(ArgmaxScreenTest, ManyRandomMatrices) {
  std::mt19937 random(11);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint32_t>(limit)); };
  for (int round = 0; round < 60; ++round) {
    const int64_t n = 1 + below(600), k = 1 + below(300), rows = 1 + below(20);
    Matrix w = random_matrix(DType::kBF16, n, k, random(), std::ldexp(1.0F, static_cast<int>(below(40)) - 20));
    Matrix x = random_matrix(DType::kBF16, rows, k, random(), std::ldexp(1.0F, static_cast<int>(below(40)) - 20));
    for (int64_t i = below(20); i > 0; --i) {  // copies of columns, some a little off
      const int64_t from = below(n), to = below(n), at = below(k);
      for (int64_t c = 0; c < k; ++c) set_element(w.view(), to, c, element(w.view(), from, c));
      set_element(w.view(), to, at, element(w.view(), to, at) * (below(2) == 0 ? 1.0F : 1.01F));
    }
    for (int64_t i = below(6); i > 0; --i) {
      set_element(x.view(), below(rows), below(k), std::ldexp(1.0F, static_cast<int>(below(60)) - 30));
      set_element(w.view(), below(n), below(k), std::ldexp(1.0F, static_cast<int>(below(60)) - 30));
    }
    if (below(3) == 0) {  // a row along a column, so that the winner is clear
      const int64_t col = below(n), row = below(rows);
      for (int64_t c = 0; c < k; ++c) set_element(x.view(), row, c, element(w.view(), col, c));
    }
    Screened screened(GetParam(), w.view(), rows);
    screened.expect_exact(x.view(), 1 + below(n), "round " + std::to_string(round));
  }
}

TEST_P(ArgmaxScreenTest, ThreadsAndNeighboursChangeNothing) {
  const Matrix w = random_matrix(DType::kBF16, 2000, 128, 12);
  const Matrix x = random_matrix(DType::kBF16, 30, 128, 13);
  Screened one(GetParam(), w.view(), 30), three(GetParam(), w.view(), 30, 3);
  const std::vector<int32_t> together = one.argmax(x.view(), 2000);
  EXPECT_EQ(three.argmax(x.view(), 2000), together);
  for (int64_t r = 0; r < 30; ++r)
    EXPECT_EQ(three.argmax(x.view().rows_from(r, 1), 2000)[0], together[static_cast<std::size_t>(r)]) << "row " << r;
}

TEST(ArgmaxScreen, OnlyOfOwnKernelsAndPlainBf16) {
  ThreadPool pool(1);
  const auto own = make_cpu_matmul(""), reference = make_ref_matmul();
  const Matrix w = random_matrix(DType::kBF16, 64, 64, 1), w32 = random_matrix(DType::kF32, 64, 64, 1);
  EXPECT_TRUE(has_argmax_screen(*own));
  EXPECT_FALSE(has_argmax_screen(*reference));
  EXPECT_EQ(make_argmax_screen(*reference, *reference->pack(w.view()), 1, pool), nullptr);
  EXPECT_EQ(make_argmax_screen(*own, *own->pack(w32.view()), 1, pool), nullptr);
  EXPECT_EQ(make_argmax_screen(*own, *own->pack(w.view(), WeightUse::kGated), 1, pool), nullptr);
  EXPECT_EQ(make_argmax_screen(*own, *own->pack(quantize_weights(w.view(), {WeightFormat::kInt8})), 1, pool), nullptr);
  const auto weights = own->pack(w.view());
  const auto screen = make_argmax_screen(*own, *weights, 1, pool);
  ASSERT_NE(screen, nullptr);
  EXPECT_EQ(screen->packed_bytes(), argmax_screen_bytes(64, 64));
  EXPECT_EQ(argmax_screen_bytes(64, 64), 2 * (32 * 64 + 32 * 4 + 2 * 32 * 4));
}

}  // namespace
}  // namespace ferry
