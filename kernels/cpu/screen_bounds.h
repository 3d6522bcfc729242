#pragma once

#include <cstdint>

namespace ferry {

/// What a row's bounds are made of (argmax_screen.h): the error of a column's product is at most
/// by_error * column_error + by_norm * column_norm + slack.
struct ScreenRow {
  float by_error = 0;
  float by_norm = 0;
  float slack = 0;
};

/// Bounds of one row and neighbouring panels of 32 columns.
struct ScreenBoundArgs {
  const float* products;       // [num_cols] with the codes of the row
  const float* rest_products;  // likewise with the second ones, or null
  const float* column_bounds;  // [panels][2][32] columns' |w - w^|, then their |w|
  ScreenRow row;
  int64_t num_cols;
  float* upper;  // [panels] written: the highest upper bound of each panel
};

/// Returns the highest lower bound.
namespace cpu_avx2 {
float bound_columns(const ScreenBoundArgs& args);
}
namespace cpu_avx512 {
float bound_columns(const ScreenBoundArgs& args);
}

}  // namespace ferry
