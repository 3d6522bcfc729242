#include "launch/verify/verification.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "launch/verify/figures.h"
#include "launch/verify/same_work.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

TimeDifference difference_of(const ReportInput& before, const ReportInput& after, const std::string& figure) {
  return compare_shares(before, steps_of_figure(before.timeline, figure), after, steps_of_figure(after.timeline, figure));
}

/// A bench's groups are works of their own: those that both did.
std::vector<std::size_t> steps_in_common(const Timeline& timeline, const std::vector<Verification::FigureGain>& figures) {
  std::set<std::size_t> steps;
  for (const Verification::FigureGain& figure : figures)
    for (const std::size_t step : steps_of_figure(timeline, figure.name)) steps.insert(step);
  return {steps.begin(), steps.end()};
}

/// Gains of the figures that both captures have and that mean the same in both.
std::vector<Verification::FigureGain> compare_figures(const Timeline& before, const Timeline& after) {
  const std::vector<Figure> first = measure_figures(before), second = measure_figures(after);
  std::vector<Verification::FigureGain> gains;
  for (const Figure& figure : first) {
    const Figure* const other = find_figure(second, figure.name);
    if (other != nullptr) gains.push_back({figure.name, figure.more_is_better, measure_gain(figure, *other)});
  }
  // All steps of a bench, and its requests, are of as many works as it has groups.
  if (!before.sections.empty()) std::erase_if(gains, [](const auto& gain) { return !steps_group(gain.name).has_value(); });
  return gains;
}

/// The option's change; nullptr if it is the same in both.
const OptionChange* find_change(const std::vector<OptionChange>& changes, const std::string& option) {
  const auto found =
      std::find_if(changes.begin(), changes.end(), [&](const OptionChange& change) { return change.option == option; });
  return found == changes.end() ? nullptr : &*found;
}

bool is_gain(Verdict verdict) { return verdict == Verdict::kCame || verdict == Verdict::kCameInPart; }
bool is_lack(Verdict verdict) { return verdict == Verdict::kDidNotCome || verdict == Verdict::kCameInPart; }

Verification::ActionResult check_action(const Action& action, const ReportInput& before, const ReportInput& after,
                                        const Verification& verification) {
  Verification::ActionResult result{.action = action};
  if (const OptionChange* const change = find_change(verification.changes, action.option)) {
    result.tried = change->after;
    result.was_tried = change->after == action.to;
  }
  const auto figure = std::find_if(verification.figures.begin(), verification.figures.end(),
                                   [&](const auto& row) { return row.name == action.metric; });
  if (figure == verification.figures.end()) return result;
  result.predicted = gain_share(action.before, action.after, figure->more_is_better);
  // The error is of time; of a figure that is work by time, its share grows with the figure.
  result.predicted_error = action.error_share * (figure->more_is_better ? std::max(1.0, 1 + result.predicted) : 1);
  if (!result.was_tried) return result;
  result.measured = figure->gain;
  result.verdict = judge_gain(result.predicted, figure->gain);
  const MachineChange& machine = verification.machine;
  result.may_be_machine = (machine.slower > 0 && is_lack(result.verdict)) || (machine.faster > 0 && is_gain(result.verdict));
  if (result.may_be_machine) result.verdict = Verdict::kCannotBeTold;
  result.difference = difference_of(before, after, action.metric);
  return result;
}

}  // namespace

bool Verification::ActionResult::is_outside() const {
  return measured && predicted_error > 0 && std::abs(measured->share - predicted) > predicted_error;
}

int Verification::exit_code() const {
  const auto has = [&](Verdict verdict) {
    return std::any_of(actions.begin(), actions.end(),
                       [&](const ActionResult& result) { return result.was_tried && result.verdict == verdict; });
  };
  if (has(Verdict::kDidNotCome)) return 1;
  const bool none_was_tried = std::none_of(actions.begin(), actions.end(), [](const auto& result) { return result.was_tried; });
  return none_was_tried || has(Verdict::kCannotBeTold) ? 3 : 0;
}

Verification verify(const ReportInput& before, const ReportInput& after, std::span<const Action> actions) {
  Verification verification{.warnings = check_same_work(before, after)};
  verification.machine = find_machine_change(before.capture.info, after.capture.info);
  verification.changes = find_option_changes(before.capture.info, after.capture.info);
  if (verification.changes.size() > 1)
    verification.warnings.push_back(std::to_string(verification.changes.size()) +
                                    " options differ: what each of them brought cannot be told apart");
  verification.figures = compare_figures(before.timeline, after.timeline);
  if (verification.figures.empty()) throw_invalid("trace verify: the captures have no steps of the same work in common");
  for (const Action& action : actions) verification.actions.push_back(check_action(action, before, after, verification));
  verification.difference = compare_shares(before, steps_in_common(before.timeline, verification.figures), after,
                                           steps_in_common(after.timeline, verification.figures));
  return verification;
}

}  // namespace ferry
