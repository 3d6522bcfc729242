#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace ferry {

inline constexpr std::size_t kFitTerms = 3;

/// One observation: y is about the sum of x[i] times a coefficient that is not negative.
struct FitPoint {
  std::array<double, kFitTerms> x{};
  double y = 0;
  double weight = 1;
};

/// The coefficients of the least squares among those that are not negative: every subset of the terms is solved, and the best
/// one counts. A term that no point has, or that others explain as well, is 0; of two terms that explain as much, the first
/// counts.
std::array<double, kFitTerms> fit_nonnegative(std::span<const FitPoint> points);

}  // namespace ferry
