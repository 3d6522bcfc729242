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

/// From what a layer takes for one row of each sequence when it guesses, as a share of what its like take in the step itself.
std::optional<OwnWork> by_guesses(const CaptureReplay& replay, const StepGroup& group, double sequences) {
  double own = 0, rows = 0, layer = 0, guess = 0, count = 0;
  for (const std::size_t i : group.steps) {
    const ReplayedStep& step = replay.steps[i];
    if (step.guess_own <= 0 || step.layer_own <= 0) continue;
    own += step.parts.own, rows += step.rows(), layer += step.layer_own, guess += step.guess_own, count += 1;
  }
  if (count == 0 || rows <= count * sequences) return {};
  const double of_row = own * std::max(0.0, 1 - guess / layer) / (rows - count * sequences);
  return OwnWork{.fixed = own / count - of_row * rows / count, .of_row = of_row};
}

}  // namespace

std::vector<PlanHost> with_rows_of(const CaptureReplay& replay, const StepGroup& group, double sequences) {
  std::vector<PlanHost> hosts = replay.costs->hosts;
  std::optional<OwnWork> own = by_unlike_steps(replay, group, sequences);
  if (!own) own = by_guesses(replay, group, sequences);
  if (!own) return hosts;
  const Curve line{{{0, std::max(0.0, own->fixed)}, {sequences, std::max(0.0, own->fixed + sequences * own->of_row)}}};
  for (PlanHost& host : hosts) {
    host.alone.own_decode = line;
    for (SharedCosts& shared : host.together) shared.costs.own_decode = line;
  }
  return hosts;
}

}  // namespace ferry
