#include "profiler/report/views/capture_diff.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/layer_types.h"

namespace ferry {
namespace {

using RowKey = std::pair<std::string, std::string>;     // group of steps, name
using Samples = std::map<RowKey, std::vector<double>>;  // us, one for every step of the phase

/// Collects one number per step of a phase; what a step does not have is 0 in it.
class StepSamples {
 public:
  explicit StepSamples(const Timeline& timeline) : timeline_(timeline), index_(timeline), groups_(step_groups(timeline)) {
    for (const StepInfo& step : timeline.steps) place_.push_back(counts_[group_index(step)]++);
  }

  void add(std::size_t step, const char* name, int64_t ns) {
    const std::size_t group = group_index(timeline_.steps[step]);
    std::vector<double>& samples = samples_[group][name];
    if (samples.empty()) samples.resize(counts_[group]);
    samples[place_[step]] += to_us(ns);
  }
  void add_numbered(uint32_t number, const char* name, int64_t ns) {
    const int32_t step = index_.find(number);
    if (step >= 0) add(static_cast<std::size_t>(step), name, ns);
  }

  Samples take() const {
    Samples all;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (const auto& [name, samples] : samples_[g]) {
        std::vector<double>& merged = all[{groups_[g], name}];  // the same text may have had two addresses
        merged.resize(samples.size());
        for (std::size_t i = 0; i < samples.size(); ++i) merged[i] += samples[i];
      }
    }
    return all;
  }

 private:
  const Timeline& timeline_;
  const StepIndex index_;
  const std::vector<std::string> groups_;
  std::vector<std::size_t> place_;  // of each step among its group's
  std::vector<std::size_t> counts_ = std::vector<std::size_t>(groups_.size(), 0);
  // By group, then by address: names are constants.
  std::vector<std::map<const char*, std::vector<double>>> samples_ =
      std::vector<std::map<const char*, std::vector<double>>>(groups_.size());
};

Samples sample_phases(const ReportInput& input) {
  StepSamples samples(input.timeline);
  for (std::size_t s = 0; s < input.timeline.steps.size(); ++s) {
    const StepInfo& step = input.timeline.steps[s];
    const Breakdown b = break_down(input.activity.at(0), {step.begin_ns, step.end_ns});
    samples.add(s, "wall", b.window);
    samples.add(s, "computing", b.computing);
    samples.add(s, "exposed", b.exposed);
    samples.add(s, "free", b.free);
  }
  return samples.take();
}

Samples sample_layer_types(const ReportInput& input) {
  StepSamples samples(input.timeline);
  SliceTypes types;
  for_each_step_slice(input.timeline,
                      [&](std::size_t step, const Slice& slice) { samples.add(step, types.of(slice), slice.self_ns); });
  return samples.take();
}

/// Of all ranks together.
Samples sample_zones(const ReportInput& input, bool transfers) {
  StepSamples samples(input.timeline);
  for (const Slice& slice : input.timeline.slices) {
    const ZoneInfo& zone = zone_info(slice.zone);
    const bool is_work = (zone.kind == ZoneKind::kCompute || zone.kind == ZoneKind::kHost) && slice.zone != Zone::kPoolTask &&
                         !slice.is_handed_over;
    if (transfers ? zone.kind != ZoneKind::kTransfer : !is_work) continue;
    samples.add_numbered(slice.step, zone.name, transfers ? slice.duration_ns() : slice.self_ns);
  }
  return samples.take();
}

std::string verdict(const std::optional<Welch>& test, double delta, double before) {
  constexpr double kSure = 0.01, kWorthwhile = 0.01;
  if (!test) return delta == 0 ? "same" : "";  // too few steps to tell
  if (delta == 0 || std::abs(delta) < kWorthwhile * before) return "same";
  if (test->p >= kSure) return "not certain";
  return delta > 0 ? "slower" : "faster";
}

Table compare(const char* id, const char* title, const char* name, const Samples& before, const Samples& after) {
  Table table{
      .id = id,
      .title = title,
      .note =
          "Microseconds a step, over the steps of a phase. p: how likely such a difference of means is by chance (Welch); "
          "verdict: same is a change of less than 1 %, not certain one with a p of 0.01 or more. Sorted by the size of the "
          "difference.",
      .columns = {{name},
                  {"phase"},
                  {"before_steps"},
                  {"after_steps"},
                  {"before_us", 3},
                  {"after_us", 3},
                  {"delta_us", 3},
                  {"delta_share", 4},
                  {"before_median_us", 3},
                  {"after_median_us", 3},
                  {"before_min_us", 3},
                  {"after_min_us", 3},
                  {"t", 3},
                  {"p", 6},
                  {"verdict"}}};
  std::map<RowKey, std::pair<std::vector<double>, std::vector<double>>> both;
  for (const auto& [key, samples] : before) both[key].first = samples;
  for (const auto& [key, samples] : after) both[key].second = samples;
  std::vector<std::pair<double, std::vector<Table::Cell>>> rows;
  for (const auto& [key, sides] : both) {
    const auto& [x, y] = sides;
    const double x_mean = mean(x), y_mean = mean(y), delta = y_mean - x_mean;
    const auto side_cell = [](const std::vector<double>& samples, double value) { return cell_if(!samples.empty(), value); };
    const auto least = [](const std::vector<double>& samples) {
      return samples.empty() ? 0.0 : *std::min_element(samples.begin(), samples.end());
    };
    const std::optional<Welch> test = welch_test(x, y);
    std::vector<Table::Cell> row = {
        key.second,           key.first,           static_cast<int64_t>(x.size()), static_cast<int64_t>(y.size()),
        side_cell(x, x_mean), side_cell(y, y_mean)};
    const bool has_both = !x.empty() && !y.empty();
    row.push_back(cell_if(has_both, delta));
    row.push_back(ratio_cell(has_both ? delta : 0, has_both ? x_mean : 0));
    row.push_back(side_cell(x, median(x)));
    row.push_back(side_cell(y, median(y)));
    row.push_back(side_cell(x, least(x)));
    row.push_back(side_cell(y, least(y)));
    row.push_back(cell_if(test.has_value(), test ? test->t : 0));
    row.push_back(cell_if(test.has_value(), test ? test->p : 0));
    row.emplace_back(x.empty() ? "added" : y.empty() ? "removed" : verdict(test, delta, x_mean));
    rows.emplace_back(std::abs(delta), std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [size, row] : rows) table.rows.push_back(std::move(row));
  return table;
}

}  // namespace

std::vector<Table> compare_captures(const ReportInput& before, const ReportInput& after) {
  return {
      compare("phase_diff", "Phases compared", "part", sample_phases(before), sample_phases(after)),
      compare("layer_type_diff", "Layer types compared", "layer_type", sample_layer_types(before), sample_layer_types(after)),
      compare("operator_diff", "Operators compared, all ranks together", "operator", sample_zones(before, false),
              sample_zones(after, false)),
      compare("transfer_diff", "Transfers compared, all ranks together", "operator", sample_zones(before, true),
              sample_zones(after, true))};
}

}  // namespace ferry
