#pragma once

#include "launch/compare/rank_test.h"
#include "launch/verify/figures.h"

namespace ferry {

/// By how much a figure got better from one capture to another: as a share of what it was, above 0 where it is better.
struct Gain {
  double before = 0, after = 0;  // the figure's values
  double share = 0;
  bool has_interval = false;  // false: too few values, 4 on both sides are enough
  double low = 0, high = 0;   // of the share, with a confidence of 95 % (rank_test.h)
  double p = 1;               // how likely at least such a difference is if there is none
  double noise_share = 0;  // what such captures differ by if nothing is different: the largest of what parts of each differ by
                           // and of what both runs' errors allow in 95 of 100 cases

  /// Whether the medians differ one way and, by the interval, most pairs of values the other way.
  bool is_contradicted() const { return has_interval && (share > 0 ? high < 0 : share < 0 && low > 0); }
  /// Whether it is a difference at all, in either direction: above noise, not by chance and not contradicted.
  bool is_certain() const;
};

/// Both are of the same name and have samples.
Gain measure_gain(const Figure& before, const Figure& after);

/// As a share, of what a figure was and what it is said to become.
double gain_share(double before, double after, bool more_is_better);

enum class Verdict { kCame, kCameInPart, kDidNotCome, kCannotBeTold };
const char* verdict_name(Verdict verdict);  // "came", "came in part", "did not come", "cannot be told"

inline constexpr double kWhole = 0.75;  // of a prediction, from which on it came
inline constexpr double kPart = 0.25;   // from which on a part of it did

/// Whether a predicted gain (a share, above 0) came. One that is certain is held against the prediction; one that is not did
/// not come if even the interval's upper end is less than a part of it and noise could not have hidden it; else nobody knows.
Verdict judge_gain(double predicted_share, const Gain& gain);

}  // namespace ferry
