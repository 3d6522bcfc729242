#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

// The few statistics that views need.

namespace ferry {

/// 0 for none.
double mean(std::span<const double> values);
/// The middle value, or the mean of the two in the middle; 0 for none.
double median(std::vector<double> values);
/// Nearest rank: the smallest value that at least `share` (0 ‥ 1) of the values do not exceed; 0 for none.
double percentile(std::vector<double> values, double share);

/// Gini coefficient of counts >= 0: 0 if all are equal, towards 1 if one has everything.
double gini(std::vector<int64_t> counts);

/// Welch's t-test of two means with unequal variances.
struct Welch {
  double t = 0;        // of mean(after) - mean(before)
  double degrees = 0;  // of freedom, by Welch and Satterthwaite
  double p = 1;        // two-sided: how likely such a difference is if the means are equal
};
/// Absent with fewer than two values on a side, or if neither side varies at all.
std::optional<Welch> welch_test(std::span<const double> before, std::span<const double> after);

}  // namespace ferry
