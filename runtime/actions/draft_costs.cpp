#include "runtime/actions/draft_costs.h"

#include <algorithm>
#include <optional>

#include "runtime/actions/nonnegative_fit.h"

namespace ferry {
namespace {

/// The coordinator's own work in a step of so many sequences, by its rows.
struct OwnWork {
  double fixed = 0, of_row = 0;  // seconds
};

/// From steps whose sequences have unlike many rows: the tenth with the most must have half as many again as the one with the
/// fewest.
std::optional<OwnWork> by_unlike_steps(const CaptureReplay& replay, const StepGroup& group, double sequences) {
  constexpr double kApart = 1.5;
  constexpr std::size_t kEnough = 30;
  std::vector<FitPoint> points;
  std::vector<double> rows_each;
  for (const std::size_t i : group.steps) {
    const ReplayedStep& step = replay.steps[i];
    if (step.sequences <= 0 || step.parts.own <= 0) continue;
    points.push_back({{1, step.sequences, step.rows()}, step.parts.own, 1 / step.parts.own});
    rows_each.push_back(step.rows() / step.sequences);
  }
  if (points.size() < kEnough) return {};
  std::ranges::sort(rows_each);
  const std::size_t tenth = rows_each.size() / 10;
  if (rows_each[rows_each.size() - 1 - tenth] < kApart * rows_each[tenth]) return {};
  const auto [fixed, of_sequence, of_row] = fit_nonnegative(points);
  return OwnWork{.fixed = fixed + sequences * of_sequence, .of_row = of_row};
}

/// From what operators do. Reading keys is told for one row of each sequence by the layer that guesses; where nobody guesses,
/// it takes as long for any number of rows of the same sequences.
std::optional<Curve> by_operators(const CaptureReplay& replay, const StepGroup& group, double sequences) {
  PartWork sum;
  double keys = 0, guessed = 0, num_guessed = 0;
  for (const std::size_t i : group.steps) {
    const ReplayedStep& step = replay.steps[i];
    sum.rows += step.rows(), sum.all += step.parts.own - step.keys;
    sum.weights += step.weights.own, sum.once += step.once.own;
    keys += step.keys;
    if (step.guess_keys > 0) guessed += step.guess_keys, num_guessed += 1;
  }
  const auto count = static_cast<double>(group.steps.size());
  if (num_guessed == 0 && replay.input.capture.info.model.operators.empty()) return {};
  const PartWork work{
      .rows = sum.rows / count, .all = sum.all / count, .weights = sum.weights / count, .once = sum.once / count};
  keys /= count;
  const double of_one = num_guessed > 0 ? std::min(keys, guessed / num_guessed) : keys;
  if (work.rows <= sequences) return {};
  Curve own{{{0, 0}, {work.rows, 0}}};
  if (work.all > 0) own = with_work(Curve{{{work.rows, work.all}}}, work, replay.costs->own_roof);
  const double of_row = (keys - of_one) / (work.rows - sequences);
  for (Curve::Point& point : own.points) point.seconds += std::max(0.0, of_one + of_row * (point.size - sequences));
  return own;
}

}  // namespace

std::vector<PlanHost> with_rows_of(const CaptureReplay& replay, const StepGroup& group, double sequences) {
  std::vector<PlanHost> hosts = replay.costs->hosts;
  std::optional<Curve> own;
  if (const std::optional<OwnWork> seen = by_unlike_steps(replay, group, sequences))
    own = Curve{{{0, std::max(0.0, seen->fixed)}, {sequences, std::max(0.0, seen->fixed + sequences * seen->of_row)}}};
  else
    own = by_operators(replay, group, sequences);
  if (!own) return hosts;
  for (PlanHost& host : hosts) {
    host.alone.own_decode = *own;
    for (SharedCosts& shared : host.together) shared.costs.own_decode = *own;
  }
  return hosts;
}

}  // namespace ferry
