#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/tensor.h"

namespace ferry::test {

/// An element passes when |actual - expected| <= absolute + relative * |expected|. At most `unequal_fraction` of the elements
/// may differ at all: a bf16 result may flip to a neighbour where the fp32 value lies near a tie, but only rarely.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
  double unequal_fraction = 1.0;
};

constexpr Tolerance kExact{0.0, 0.0, 0.0};

namespace detail {

inline double element(const ConstMatrixView& view, int64_t r, int64_t c) {
  return view.dtype == DType::kF32 ? to_float(view.row<float>(r)[c]) : to_float(view.row<bfloat16>(r)[c]);
}

}  // namespace detail

/// Compares element by element. A failure names the worst element, both values, the error and what was allowed. NaN equals NaN
/// only; an infinity equals itself only.
inline testing::AssertionResult all_close(const ConstMatrixView& actual, const ConstMatrixView& expected,
                                          const Tolerance& tolerance) {
  if (actual.rows != expected.rows || actual.cols != expected.cols) {
    return testing::AssertionFailure() << "shape [" << actual.rows << ", " << actual.cols << "] instead of [" << expected.rows
                                       << ", " << expected.cols << "]";
  }
  double worst_excess = 0.0;  // error above what is allowed
  int64_t worst_row = -1, worst_col = -1, num_unequal = 0;
  for (int64_t r = 0; r < actual.rows; ++r) {
    for (int64_t c = 0; c < actual.cols; ++c) {
      const double a = detail::element(actual, r, c);
      const double e = detail::element(expected, r, c);
      if (a == e || (std::isnan(a) && std::isnan(e))) continue;
      ++num_unequal;
      const double allowed = tolerance.absolute + tolerance.relative * std::abs(e);
      const bool comparable = std::isfinite(a) && std::isfinite(e);
      const double excess = comparable ? std::abs(a - e) - allowed : std::numeric_limits<double>::infinity();
      if (excess > worst_excess) {
        worst_excess = excess;
        worst_row = r;
        worst_col = c;
      }
    }
  }
  if (worst_row >= 0) {
    const double a = detail::element(actual, worst_row, worst_col);
    const double e = detail::element(expected, worst_row, worst_col);
    return testing::AssertionFailure() << "worst element [" << worst_row << ", " << worst_col << "]: " << a << " instead of "
                                       << e << ", error " << std::abs(a - e) << ", allowed " << tolerance.absolute << " + "
                                       << tolerance.relative << " * |expected|; " << num_unequal << " of "
                                       << actual.rows * actual.cols << " elements differ";
  }
  if (static_cast<double>(num_unequal) > tolerance.unequal_fraction * static_cast<double>(actual.rows * actual.cols)) {
    return testing::AssertionFailure() << num_unequal << " of " << actual.rows * actual.cols
                                       << " elements differ (within tolerance); "
                                       << "allowed is a fraction of " << tolerance.unequal_fraction;
  }
  return testing::AssertionSuccess();
}

/// The same for floats.
inline testing::AssertionResult all_close(std::span<const float> actual, std::span<const float> expected,
                                          const Tolerance& tolerance) {
  const auto as_row = [](std::span<const float> values) {
    const auto size = static_cast<int64_t>(values.size());
    return ConstMatrixView{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, 1, size, size};
  };
  return all_close(as_row(actual), as_row(expected), tolerance);
}

}  // namespace ferry::test
