#include "runtime/actions/step_clock.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/actions/cost_curves.h"
#include "runtime/actions/nonnegative_fit.h"
#include "runtime/actions/roofs.h"

namespace ferry {

namespace {

/// The curve with points beyond its last one: by what factor a step takes longer there, a plan says, but no row less than
/// `least_row_s`.
Curve continued(Curve curve, double last_size, bool is_decode, double least_row_s, const StepClock::Plan& plan) {
  const double planned = plan(last_size, is_decode);
  if (planned <= 0) return curve;
  std::erase_if(curve.points, [&](const Curve::Point& point) { return point.size > last_size; });
  const double last_s = curve.at(last_size);
  if (curve.points.back().size < last_size) curve.points.push_back({last_size, last_s});
  for (double size = 1.5 * last_size; size <= kMostRows; size *= 1.5) {
    const Curve::Point before = curve.points.back();
    const double seconds = last_s * plan(std::round(size), is_decode) / planned;
    curve.points.push_back({size, std::max(seconds, before.seconds + least_row_s * (size - before.size))});
  }
  return curve;
}

double largest(const std::vector<SizedTime>& times) {
  double most = 0;
  for (const SizedTime& t : times) most = std::max(most, t.size);
  return most;
}

}  // namespace

StepClock::StepClock(std::span<const ReplayedStep> steps, double gap_s, double least_row_s, const Plan& plan) : gap_s_(gap_s) {
  std::vector<SizedTime> decode, prefill;
  std::vector<FitPoint> all;
  for (const ReplayedStep& step : steps) {
    if (step.rows() == 0) continue;
    const double seconds = step.parts.sum();
    if (step.prefill_rows == 0) decode.push_back({step.decode_rows, seconds});
    if (step.decode_rows == 0) prefill.push_back({step.prefill_rows, seconds});
    all.push_back({{1, step.decode_rows, step.prefill_rows}, seconds, 1 / std::max(seconds * seconds, 1e-12)});
  }
  const auto [fixed, per_decode, per_prefill] = fit_nonnegative(all);
  decode_ = mean_curve(decode);
  prefill_ = mean_curve(prefill);
  const auto line = [fixed = fixed](double slope) { return Curve{{{0, fixed}, {1024, fixed + 1024 * slope}}}; };
  decode_ = decode_.points.empty() ? line(per_decode) : with_slope(decode_, per_decode);
  prefill_ = prefill_.points.empty() ? line(per_prefill) : with_slope(prefill_, std::max(per_prefill, least_row_s));
  has_prefill_ = !prefill.empty() || decode.empty();
  if (plan && !decode.empty()) decode_ = continued(std::move(decode_), largest(decode), true, 0, plan);
  if (plan && !prefill.empty()) prefill_ = continued(std::move(prefill_), largest(prefill), false, least_row_s, plan);
  double measured = 0, predicted = 0;
  for (const ReplayedStep& step : steps) {
    if (step.prefill_rows == 0 || step.decode_rows == 0) continue;
    measured += step.parts.sum();
    predicted += of_rows(step.decode_rows, step.prefill_rows);
  }
  if (predicted > 0) mixed_factor_ = measured / predicted;
  double rows = 0, sequences = 0;
  for (const ReplayedStep& step : steps) rows += step.decode_rows, sequences += step.sequences;
  if (sequences > 0) rows_per_sequence_ = std::max(1.0, rows / sequences);
}

double StepClock::of_rows(double decode_rows, double prefill_rows) const {
  if (prefill_rows == 0) return decode_.at(decode_rows);
  if (decode_rows == 0 && has_prefill_) return prefill_.at(prefill_rows);
  const double all = decode_.at(decode_rows + prefill_rows);
  const double both = has_prefill_ ? prefill_.at(prefill_rows) + std::max(0.0, all - decode_.at(prefill_rows)) : all;
  return mixed_factor_ * std::max(decode_.at(decode_rows), both);
}

double StepClock::seconds(double num_decoding, double prefill_rows) const {
  return gap_s_ + of_rows(num_decoding * rows_per_sequence_, prefill_rows);
}

}  // namespace ferry
