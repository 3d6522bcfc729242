#include "runtime/actions/nonnegative_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace ferry {
namespace {

using Coefficients = std::array<double, kFitTerms>;

/// Sums of products of terms, and of terms with y.
struct Normal {
  std::array<std::array<double, kFitTerms>, kFitTerms> xx{};
  Coefficients xy{};
  double yy = 0;
};

Normal sum_up(std::span<const FitPoint> points) {
  Normal n;
  for (const FitPoint& p : points) {
    for (std::size_t i = 0; i < kFitTerms; ++i) {
      for (std::size_t j = 0; j < kFitTerms; ++j) n.xx[i][j] += p.weight * p.x[i] * p.x[j];
      n.xy[i] += p.weight * p.x[i] * p.y;
    }
    n.yy += p.weight * p.y * p.y;
  }
  return n;
}

/// Gauss and Jordan over the terms in `subset`; false where they are not independent.
bool solve(const Normal& n, unsigned subset, Coefficients& result) {
  std::vector<std::size_t> terms;
  for (std::size_t i = 0; i < kFitTerms; ++i)
    if ((subset >> i & 1U) != 0) terms.push_back(i);
  std::array<std::array<double, kFitTerms + 1>, kFitTerms> m{};
  for (std::size_t r = 0; r < terms.size(); ++r) {
    for (std::size_t c = 0; c < terms.size(); ++c) m[r][c] = n.xx[terms[r]][terms[c]];
    m[r][terms.size()] = n.xy[terms[r]];
  }
  constexpr double kIndependent = 1e-9;  // of what the term's square was
  for (std::size_t k = 0; k < terms.size(); ++k) {
    const double pivot = m[k][k];
    if (!(pivot > kIndependent * n.xx[terms[k]][terms[k]])) return false;
    for (std::size_t c = k; c <= terms.size(); ++c) m[k][c] /= pivot;
    for (std::size_t r = 0; r < terms.size(); ++r) {
      if (r == k) continue;
      const double factor = m[r][k];
      for (std::size_t c = k; c <= terms.size(); ++c) m[r][c] -= factor * m[k][c];
    }
  }
  result = {};
  for (std::size_t r = 0; r < terms.size(); ++r) result[terms[r]] = m[r][terms.size()];
  return std::ranges::all_of(result, [](double c) { return std::isfinite(c) && c >= 0; });
}

double error_of(const Normal& n, const Coefficients& c) {
  double error = n.yy;
  for (std::size_t i = 0; i < kFitTerms; ++i) {
    error -= 2 * c[i] * n.xy[i];
    for (std::size_t j = 0; j < kFitTerms; ++j) error += c[i] * c[j] * n.xx[i][j];
  }
  return error;
}

}  // namespace

std::array<double, kFitTerms> fit_nonnegative(std::span<const FitPoint> points) {
  const Normal n = sum_up(points);
  Coefficients best{};
  double least = n.yy;
  constexpr double kBetter = 1e-9;  // a further term has to explain something
  for (unsigned subset = 1; subset < 1U << kFitTerms; ++subset) {
    Coefficients found;
    if (!solve(n, subset, found)) continue;
    const double error = error_of(n, found);
    if (error < least - kBetter * n.yy) least = error, best = found;
  }
  return best;
}

}  // namespace ferry
