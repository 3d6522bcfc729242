#include "profiler/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace ferry {
namespace {

/// Sum of squared distances from the mean.
double squares(std::span<const double> values) {
  const double center = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - center) * (value - center);
  return sum;
}

/// The continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kMaxTerms = 500;
  const auto guarded = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / guarded(1 - (a + b) * x / (a + 1)), result = d;
  for (int m = 1; m <= kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double step = 1;
    for (const double term : {even, odd}) {
      d = 1 / guarded(1 + term * d);
      c = guarded(1 + term / c);
      step = c * d;
      result *= step;
    }
    if (std::abs(step - 1) < 1e-14) break;
  }
  return result;
}

/// The regularised incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast on one side of the distribution's middle only.
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double gini(std::vector<int64_t> counts) {
  std::sort(counts.begin(), counts.end());
  const auto n = static_cast<double>(counts.size());
  double sum = 0, weighted = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto count = static_cast<double>(counts[i]);
    sum += count;
    weighted += static_cast<double>(i + 1) * count;
  }
  return sum > 0 ? 2 * weighted / (n * sum) - (n + 1) / n : 0;
}

std::optional<Welch> welch_test(std::span<const double> before, std::span<const double> after) {
  if (before.size() < 2 || after.size() < 2) return std::nullopt;
  const auto m = static_cast<double>(before.size()), n = static_cast<double>(after.size());
  const double x = squares(before) / (m - 1) / m, y = squares(after) / (n - 1) / n;
  if (x + y <= 0) return std::nullopt;
  Welch test;
  test.t = (mean(after) - mean(before)) / std::sqrt(x + y);
  test.degrees = (x + y) * (x + y) / (x * x / (m - 1) + y * y / (n - 1));
  test.p = incomplete_beta(test.degrees / 2, 0.5, test.degrees / (test.degrees + test.t * test.t));
  return test;
}

}  // namespace ferry
