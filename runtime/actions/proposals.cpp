#include "runtime/actions/proposals.h"

#include <algorithm>
#include <cmath>

#include "profiler/report/findings/format.h"

namespace ferry {

bool set_saving(Action& action, double before, bool is_rate, const Saving& saving) {
  constexpr double kUncertain = 0.15;
  const double share = saving.share();
  action.before = before;
  action.after =
      saving.after_s > 0 ? before * (is_rate ? saving.before_s / saving.after_s : saving.after_s / saving.before_s) : 0;
  action.saved_ms = 1e3 * saving.all_saved_s;
  action.saved_share = share;
  action.error_share = std::hypot(share * (saving.doubt + std::abs(saving.self_error)), 2 * saving.noise);
  std::string check = format("the replay of what was captured is %.1f %% off", 100 * saving.self_error);
  if (std::abs(saving.self_error) > kUncertain) check += ", so this is uncertain";
  action.assumes += (action.assumes.empty() ? "" : "; ") + check;
  return saving.after_s > 0 && saving.all_saved_s > 0 && share >= kLeastGain && share > action.error_share;
}

namespace {

/// `kept` says which share of a group's saving counts.
GroupSaving find_saving(const CaptureReplay& replay, PlanReplay& captured, PlanReplay& changed, const PlanCase& c, double doubt,
                        const std::function<double(const StepGroup&)>& kept) {
  GroupSaving best = find_group_saving(replay, doubt, [&](const StepGroup& group) {
    const double before = captured.captured_seconds(group);
    const double saved = before > 0 ? kept(group) * (1 - changed.seconds(group, c) / before) : 0;
    return group.seconds * (1 - saved);
  });
  if (best.group != nullptr) best.saving.self_error = captured.captured_seconds(*best.group) / best.group->seconds - 1;
  return best;
}

}  // namespace

GroupSaving find_group_saving(const CaptureReplay& replay, double doubt,
                              const std::function<double(const StepGroup&)>& after_s) {
  GroupSaving best;
  double all_saved_s = 0, most_s = 0;
  for (const StepGroup& group : replay.groups) {
    const double after = after_s(group), saved = group.seconds - after;
    all_saved_s += saved;
    if (saved <= most_s) continue;
    most_s = saved;
    best.group = &group;
    best.saving = {.before_s = group.seconds, .after_s = after, .noise = group.noise, .doubt = doubt};
  }
  best.saving.all_saved_s = all_saved_s;
  return best;
}

GroupSaving find_group_saving(const CaptureReplay& replay, PlanReplay& captured, PlanReplay& changed, const PlanCase& c,
                              double doubt) {
  return find_saving(replay, captured, changed, c, doubt, [](const StepGroup&) { return 1.0; });
}

GroupSaving find_balance_saving(const CaptureReplay& replay, PlanReplay& model, const PlanCase& c, double doubt) {
  PlanCase was = replay.costs->captured;
  was.given = &replay.costs->placement;
  return find_saving(replay, model, model, c, doubt, [&](const StepGroup& group) {
    double measured = 0;
    for (const std::size_t i : group.steps) measured += replay.costs->step_imbalance[i];
    const double predicted = model.times(group, was).imbalance;
    return predicted > 0 ? std::clamp(measured / predicted, 0.0, 1.0) : 1.0;
  });
}

}  // namespace ferry
