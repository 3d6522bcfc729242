#include "runtime/actions/draft_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "runtime/actions/nonnegative_fit.h"
#include "runtime/actions/roofs.h"

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
/// it takes as long for few rows of the same sequences if they make one tile, else each row its share.
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
  const double of_rows = has_tiles(replay.input) ? keys : keys * std::min(1.0, count * sequences / sum.rows);
  const double of_one = num_guessed > 0 ? std::min(keys, guessed / num_guessed) : of_rows;
  if (work.rows <= sequences) return {};
  Curve own{{{0, 0}, {work.rows, 0}}};
  if (work.all > 0) own = with_work(Curve{{{work.rows, work.all}}}, work, replay.costs->own_roof);
  const double of_row = (keys - of_one) / (work.rows - sequences);
  for (Curve::Point& point : own.points) point.seconds += std::max(0.0, of_one + of_row * (point.size - sequences));
  return own;
}

}  // namespace

ExpertsOfRows::ExpertsOfRows(const CaptureReplay& replay, const StepGroup& group)
    : replay_(replay), top_k_(static_cast<double>(replay.input.capture.info.model.top_k)) {
  std::map<std::size_t, std::set<int32_t>> steps;  // layers with experts that rows asked for
  for (const std::size_t i : group.steps) steps[replay.steps[i].index];
  double seen = 0;
  for (const ExpertCall& call : replay.calls) {
    const auto found = steps.find(call.step);
    if (found == steps.end()) continue;
    found->second.insert(call.layer);
    seen += call.touched;
  }
  const auto of_pool = [&](double pool) {
    double sum = 0;
    for (const auto& [step, layers] : steps) sum += static_cast<double>(layers.size()) * alike(replay.steps[step].rows(), pool);
    return sum;
  };
  double less = top_k_, more = static_cast<double>(replay.input.capture.info.expert_rank.size());
  if (seen <= 0 || more <= less) return;
  for (int round = 0; round < 40; ++round) (of_pool((less + more) / 2) < seen ? less : more) = (less + more) / 2;
  pool_ = (less + more) / 2;
}

double ExpertsOfRows::alike(double rows, double pool) const { return pool * (1 - std::pow(1 - top_k_ / pool, rows)); }

double ExpertsOfRows::drawn(double rows) const {
  double touched = 0, layers = 0;
  for (const std::vector<int64_t>& counts : replay_.input.capture.info.expert_tokens) {
    double all = 0;
    for (const int64_t count : counts) all += static_cast<double>(count);
    if (all <= 0) continue;
    layers += 1;
    for (const int64_t count : counts)
      touched += 1 - std::pow(1 - std::min(1.0, top_k_ * static_cast<double>(count) / all), rows);
  }
  return layers > 0 ? touched / layers : 0;
}

double ExpertsOfRows::share_of_drawn(double rows) const {
  const double all = drawn(rows);
  return pool_ > 0 && all > 0 ? std::min(1.0, alike(rows, pool_) / all) : 1;
}

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
