#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "runtime/actions/replayed_steps.h"
#include "runtime/plan/curve.h"

namespace ferry {

/// Something that was seen once: seconds at a size.
struct SizedTime {
  double size = 0;
  double seconds = 0;
};

/// Means by size, sizes within a fifth of each other together. They rise with the size, or stay: what noise makes fall is
/// averaged. Empty for none.
Curve mean_curve(std::span<const SizedTime> times);

/// Likewise of medians, all as many times as long as makes their sum that of the times: what disturbs some calls has nothing to
/// do with their sizes, but few calls of a size may have much of it.
Curve typical_curve(std::span<const SizedTime> times);

/// A curve whose last straight line goes on with `slope` seconds a unit, where it has one point alone or ends; and begins at
/// size 0 with what is left of its first point, at least `least`.
Curve with_slope(Curve curve, double slope, double least = 0);

/// How many seconds a unit takes between a curve's first and last point; nothing where its sizes lie too close together.
double slope_of(const Curve& curve);

/// What a row takes between the last point of one curve and the first of another, of larger sizes; 0 where that says nothing.
double slope_between(const Curve& small, const Curve& large);

/// A part of a mean step of `rows`, seconds, as its operators tell.
struct PartWork {
  double rows = 0;
  double all = 0;
  double weights = 0;  // operators that read weights
  double once = 0;     // whatever the rows
};

/// What bounds operators that read weights, seconds: reading all of them once, and multiplying one row. 0: not known.
struct WeightsRoof {
  double read = 0;
  double row = 0;
};

/// A part's curve for fewer and for more rows than any had. Operators that read weights take what they took, for fewer rows no
/// less than reading takes, and for more until multiplying takes longer; what is neither they nor taken once goes by rows.
Curve with_work(Curve seen, const PartWork& work, const WeightsRoof& roof);

/// What experts cost: call + touched * expert(rows / touched).
struct ExpertCosts {
  double call = 0;
  Curve expert;
};
/// `time` is which of a call's times counts. Empty for no calls.
ExpertCosts fit_expert_calls(std::span<const ExpertCall> calls, double ExpertCall::*time);

/// Costs of ranks that are not equally fast: those of a middle one, and by rank how many times as long each takes. Ranks have
/// calls of unlike sizes; that one is slow must not look like what its sizes take.
struct RankedCosts {
  ExpertCosts costs;
  std::map<int32_t, double> factors;
};
RankedCosts fit_ranked_calls(std::span<const ExpertCall> calls, double ExpertCall::*time);

/// The curve beyond its last point by the roof: an expert takes as long as there while its weights are what takes time. From
/// where its rows multiply in `row_s` seconds each, or as fast as the last point's did, these do. As it is for 0.
Curve with_roof(Curve expert, double row_s);

}  // namespace ferry
