#include "launch/compare/rank_test.h"

#include <algorithm>
#include <cmath>

#include "launch/sample.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

/// The probabilities of U = 0, 1, … for m and n values. The largest of all is one of the m with probability m / (m + n), and
/// then it is above all n of the others: so p(m, n)[u] = m / (m + n) p(m - 1, n)[u - n] + n / (m + n) p(m, n - 1)[u].
std::vector<double> u_probabilities(std::size_t m, std::size_t n) {
  std::vector<std::vector<double>> of_n(n + 1, {1});  // [n] for the current m, at first 0: U is 0
  for (std::size_t i = 1; i <= m; ++i) {
    of_n[0] = {1};
    for (std::size_t j = 1; j <= n; ++j) {
      const double share = static_cast<double>(i) / static_cast<double>(i + j);
      std::vector<double> now(i * j + 1, 0);
      for (std::size_t u = 0; u < of_n[j].size(); ++u) now[u + j] += share * of_n[j][u];
      for (std::size_t u = 0; u < of_n[j - 1].size(); ++u) now[u] += (1 - share) * of_n[j - 1][u];
      of_n[j] = std::move(now);
    }
  }
  return of_n[n];
}

/// With a correction for continuity.
double normal_cdf(std::size_t m, std::size_t n, std::int64_t u) {
  const auto a = static_cast<double>(m), b = static_cast<double>(n);
  const double z = (static_cast<double>(u) + 0.5 - a * b / 2) / std::sqrt(a * b * (a + b + 1) / 12);
  return std::erfc(-z / std::sqrt(2.0)) / 2;
}

/// Cumulative probabilities of U = 0 ‥ m n / 2, which is all that a two-sided test asks for.
std::vector<double> lower_half(std::size_t m, std::size_t n) {
  std::vector<double> cumulative;
  const std::size_t half = m * n / 2;
  if (m > RankTest::kExactMost || n > RankTest::kExactMost) {
    for (std::size_t u = 0; u <= half; ++u) cumulative.push_back(normal_cdf(m, n, static_cast<std::int64_t>(u)));
    return cumulative;
  }
  const std::vector<double> probabilities = u_probabilities(m, n);
  double sum = 0;
  for (std::size_t u = 0; u <= half; ++u) cumulative.push_back(sum += probabilities[u]);
  return cumulative;
}

}  // namespace

double mann_whitney_cdf(std::size_t m, std::size_t n, std::int64_t u) {
  FERRY_CHECK(m >= 1 && n >= 1 && m <= 10000 && n <= 10000) << m << " and " << n << " values";
  const auto all = static_cast<std::int64_t>(m * n);
  if (u < 0) return 0;
  if (u >= all) return 1;
  if (2 * u <= all) return lower_half(m, n)[static_cast<std::size_t>(u)];
  return 1 - lower_half(m, n)[static_cast<std::size_t>(all - u - 1)];  // U and m n - U have the same distribution
}

RankTest rank_test(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> ratios;  // of all pairs
  ratios.reserve(first.size() * second.size());
  for (const double a : first)
    for (const double b : second) ratios.push_back(b / a);
  FERRY_CHECK(!ratios.empty()) << first.size() << " and " << second.size() << " values";
  std::sort(ratios.begin(), ratios.end());
  const std::vector<double> cumulative = lower_half(first.size(), second.size());

  RankTest test{.ratio = summarise(second).median / summarise(first).median};
  const auto below = std::lower_bound(ratios.begin(), ratios.end(), 1.0), above = std::upper_bound(below, ratios.end(), 1.0);
  const std::size_t not_above = static_cast<std::size_t>(above - ratios.begin()),
                    not_below = static_cast<std::size_t>(ratios.end() - below);
  const std::size_t u = std::min(not_above, not_below);
  test.p = u < cumulative.size() ? std::min(1.0, 2 * cumulative[u]) : 1.0;
  // As many of the outermost ratios as both ends may leave out together at that level.
  const auto left_out = static_cast<std::size_t>(std::upper_bound(cumulative.begin(), cumulative.end(), RankTest::kLevel / 2) -
                                                 cumulative.begin());
  test.has_interval = left_out > 0;
  if (!test.has_interval) return test;
  test.low = ratios[left_out - 1];
  test.high = ratios[ratios.size() - left_out];
  return test;
}

}  // namespace ferry
