#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "kernels/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/test_stream.h"

// Random matrices and their comparison, for the tests of the kernels that are built from products.

namespace ferry {

inline void set_element(MatrixView view, int64_t row, int64_t col, float value) {
  visit_dtype(view.dtype, [&]<class T>() { view.row<T>(row)[col] = from_float<T>(value); });
}
inline float element(ConstMatrixView view, int64_t row, int64_t col) {
  return visit_dtype(view.dtype, [&]<class T>() { return to_float(view.row<T>(row)[col]); });
}

void fill(MatrixView view, float value);

/// Fills with normal values of deviation `scale`; the same seed gives the same values.
void fill_random(MatrixView view, uint32_t seed, float scale = 1.0f);
Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed, float scale = 1.0f);

/// Every element within `relative` of the largest expected magnitude; bf16 may also differ by one unit in its last place,
/// because fp32 results on both sides of a rounding boundary go different ways.
inline void expect_close(ConstMatrixView expected, ConstMatrixView actual, float relative, const std::string& what) {
  double largest = std::numeric_limits<float>::min();  // below it floats lose their precision
  for (int64_t r = 0; r < expected.rows; ++r) {
    for (int64_t c = 0; c < expected.cols; ++c) largest = std::max<double>(largest, std::abs(element(expected, r, c)));
  }
  const double last_place = expected.dtype == DType::kF32 ? 0.0 : 1.0 / 128.0;
  const double absolute = relative * largest + std::numeric_limits<float>::min();
  EXPECT_TRUE(test::all_close(actual, expected, {.absolute = absolute, .relative = last_place, .unequal_fraction = 1.0}))
      << what;
}

inline void expect_same_bits(ConstMatrixView expected, ConstMatrixView actual, const std::string& what) {
  ASSERT_EQ(expected.rows, actual.rows) << what;
  ASSERT_EQ(expected.cols, actual.cols) << what;
  ASSERT_EQ(expected.dtype, actual.dtype) << what;
  for (int64_t r = 0; r < expected.rows; ++r) {
    const auto bytes = static_cast<std::size_t>(expected.cols * dtype_bytes(expected.dtype));
    ASSERT_EQ(std::memcmp(expected.row_bytes(r), actual.row_bytes(r), bytes), 0) << what << ": row " << r << " differs";
  }
}

/// The vector tables that this processor can run.
inline std::vector<const OpTable*> vector_op_tables() {
  std::vector<const OpTable*> tables = available_op_tables();
  tables.pop_back();
  return tables;
}

inline constexpr DType kBothDTypes[] = {DType::kF32, DType::kBF16};

}  // namespace ferry
