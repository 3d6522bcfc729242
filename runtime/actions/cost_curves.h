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

/// A curve whose last straight line goes on with `slope` seconds a unit, where it has one point alone or ends; and begins at
/// size 0 with what is left of its first point, at least `least`.
Curve with_slope(Curve curve, double slope, double least = 0);

/// How many seconds a unit takes between a curve's first and last point; nothing where its sizes lie too close together.
double slope_of(const Curve& curve);

/// What a row takes between the last point of one curve and the first of another, of larger sizes; 0 where that says nothing.
double slope_between(const Curve& small, const Curve& large);

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
/// where its rows multiply at `reached_flops_per_s`, or as fast as the last point did, these do. As it is where neither is
/// known.
Curve with_roof(Curve expert, double flop_per_row, double reached_flops_per_s);

}  // namespace ferry
