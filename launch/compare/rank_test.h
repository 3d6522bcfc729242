#pragma once

#include <cstdint>
#include <vector>

namespace ferry {

/// Whether two sets of timings differ, and by what factor. Timings on a shared machine have tails and jumps, so nothing is
/// assumed of their distribution but that both have the same shape up to a factor: the two-sided Mann-Whitney U test, exact for
/// up to kExactMost values a side, and the confidence interval that goes with it, which is made of the ratios of all pairs
/// (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, third edition, sections 4.1 and 4.3, on logarithms; the
/// counts of U by Mann and Whitney 1947). The interval leaves out 1 exactly where the test rejects. Ties count as evidence of
/// no difference, so with them the level is kept rather than met.
struct RankTest {
  static constexpr double kLevel = 0.05;  // of calling a difference what is none
  static constexpr std::size_t kExactMost = 50;

  double ratio = 1;           // of the medians, second over first
  bool has_interval = false;  // false: the level cannot be had with so few values, 4 on both sides are enough
  double low = 0, high = 0;   // of the factor between the distributions, with a confidence of 1 - kLevel
  double p = 1;               // how likely at least such a difference is, two-sided, if there is none

  bool is_different() const { return has_interval && (low > 1 || high < 1); }
};

/// Both have values, all of them finite and above 0.
RankTest rank_test(const std::vector<double>& first, const std::vector<double>& second);

/// The probability that U is at most `u` if nothing differs: of `m` and `n` values, 1 ‥ 10000 each.
double mann_whitney_cdf(std::size_t m, std::size_t n, std::int64_t u);

}  // namespace ferry
