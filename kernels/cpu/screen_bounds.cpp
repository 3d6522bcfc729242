#include "kernels/cpu/screen_bounds.h"

#include <math.h>

#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

struct Bounds {
  F32x16 upper, lower;
};

/// Of the columns of one half of a panel, the first one at `col` of the row.
template <class Lanes>
[[gnu::always_inline]] inline Bounds bound_half(const ScreenBoundArgs& args, const float* column_bounds, int64_t col,
                                                Lanes lanes) {
  F32x16 product = load(args.products + col, lanes);
  if (args.rest_products != nullptr) product = product + load(args.rest_products + col, lanes);
  const F32x16 by_norm = fma(F32x16(args.row.by_norm), load(column_bounds + kPanelCols), F32x16(args.row.slack));
  const F32x16 error = fma(F32x16(args.row.by_error), load(column_bounds), by_norm);
  return {product + error, product - error};
}

/// Of the last panel, which may have fewer columns.
float bound_last_panel(const ScreenBoundArgs& args, const float* column_bounds, int64_t first_col, float& highest_lower) {
  float highest_upper = -INFINITY;
  for (int64_t half = 0; half < kPanelCols; half += kHalfCols) {
    const int64_t left = args.num_cols - first_col - half, count = left < kHalfCols ? left : kHalfCols;
    if (count <= 0) break;
    const Bounds bounds = bound_half(args, column_bounds + half, first_col + half, count);
    float upper[kHalfCols], lower[kHalfCols];
    store(upper, bounds.upper);
    store(lower, bounds.lower);
    for (int64_t c = 0; c < count; ++c) {
      highest_upper = upper[c] > highest_upper ? upper[c] : highest_upper;
      highest_lower = lower[c] > highest_lower ? lower[c] : highest_lower;
    }
  }
  return highest_upper;
}

}  // namespace

float bound_columns(const ScreenBoundArgs& args) {
  const int64_t num_whole = args.num_cols / kPanelCols;
  const float* column_bounds = args.column_bounds;
  F32x16 lower(-INFINITY);
  for (int64_t p = 0; p < num_whole; ++p, column_bounds += 2 * kPanelCols) {
    const Bounds low = bound_half(args, column_bounds, p * kPanelCols, AllLanes{});
    const Bounds high = bound_half(args, column_bounds + kHalfCols, p * kPanelCols + kHalfCols, AllLanes{});
    args.upper[p] = horizontal_max(max(low.upper, high.upper));
    lower = max(max(low.lower, high.lower), lower);
  }
  float highest_lower = horizontal_max(lower);
  if (args.num_cols % kPanelCols > 0)
    args.upper[num_whole] = bound_last_panel(args, column_bounds, num_whole * kPanelCols, highest_lower);
  return highest_lower;
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
