#include "profiler/report/timeline/step_slices.h"

#include <algorithm>
#include <cstdio>

namespace ferry {

int32_t find_step_lane(const Timeline& timeline) {
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    if (timeline.lanes[l].kind != Lane::Kind::kThread || timeline.lanes[l].rank != 0) continue;
    const auto [first, last] = timeline.lane_range(static_cast<int32_t>(l));
    const auto begin = timeline.slices.begin();
    if (std::any_of(begin + first, begin + last, [](const Slice& slice) { return slice.zone == Zone::kStep; }))
      return static_cast<int32_t>(l);
  }
  return -1;
}

StepIndex::StepIndex(const Timeline& timeline) {
  for (std::size_t i = 0; i < timeline.steps.size(); ++i) steps_.emplace_back(timeline.steps[i].step, static_cast<int32_t>(i));
  std::sort(steps_.begin(), steps_.end());
}

int32_t StepIndex::find(uint32_t step) const {
  if (steps_.empty() || step < steps_.front().first) return -1;
  const std::size_t guess = step - steps_.front().first;  // right unless numbers are missing
  if (guess < steps_.size() && steps_[guess].first == step) return steps_[guess].second;
  const auto at = std::lower_bound(steps_.begin(), steps_.end(), std::pair<uint32_t, int32_t>(step, 0));
  return at != steps_.end() && at->first == step ? at->second : -1;
}

std::vector<std::string> step_groups(const Timeline& timeline) {
  std::vector<std::string> names;
  for (const Phase phase : kPhases) names.emplace_back(phase_name(phase));
  for (const SectionInfo& section : timeline.sections) names.push_back(section.name());
  return names;
}

std::vector<int64_t> count_steps(const Timeline& timeline) {
  std::vector<int64_t> counts(kNumPhases + timeline.sections.size(), 0);
  for (const StepInfo& step : timeline.steps) ++counts[group_index(step)];
  return counts;
}

int64_t total_step_ns(const Timeline& timeline) {
  int64_t sum = 0;
  for (const StepInfo& step : timeline.steps) sum += step.end_ns - step.begin_ns;
  return sum;
}

int64_t count_layers(const ReportInput& input) {
  auto count = static_cast<int64_t>(input.capture.info.model.layer_types.size());
  for (const Slice& slice : input.timeline.slices) count = std::max<int64_t>(count, slice.layer + 1);
  return count;
}

double clock_bound_ns(const ReportInput& input, int32_t rank, int32_t other) {
  if (rank == other) return 0;
  const auto bound = [&](int32_t r) { return input.capture.ranks.at(static_cast<std::size_t>(r)).alignment.bound_ns; };
  return bound(rank) + bound(other);
}

std::string clock_note(const ReportInput& input) {
  double bound_ns = 0;
  for (const RankCapture& rank : input.capture.ranks) bound_ns = std::max(bound_ns, rank.alignment.bound_ns);
  char text[160];
  std::snprintf(
      text, sizeof text,
      "Each rank's clock is right to within %.3f us; differences between ranks below their clock_bound_us are not counted.",
      bound_ns / 1e3);
  return text;
}

bool is_peer_wait(Zone zone) { return zone == Zone::kWaitDispatch || zone == Zone::kWaitCombine || zone == Zone::kWaitSend; }

}  // namespace ferry
