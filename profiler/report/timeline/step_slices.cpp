#include "profiler/report/timeline/step_slices.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

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

namespace {

template <class Visit>
void for_each_device_slice(const Timeline& timeline, int32_t rank, Visit&& visit) {
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    if (timeline.lanes[l].rank != rank || timeline.lanes[l].kind != Lane::Kind::kDevice) continue;
    const auto [first, last] = timeline.lane_range(static_cast<int32_t>(l));
    for (int32_t i = first; i < last; ++i) visit(timeline.slices[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

bool has_device_lane(const Timeline& timeline, int32_t rank) {
  return std::ranges::any_of(timeline.lanes,
                             [&](const Lane& lane) { return lane.rank == rank && lane.kind == Lane::Kind::kDevice; });
}

IntervalSet find_device_busy(const Timeline& timeline, int32_t rank) {
  std::vector<Interval> spans;
  for_each_device_slice(timeline, rank, [&](const Slice& slice) { spans.push_back({slice.begin_ns, slice.end_ns}); });
  return make_interval_set(std::move(spans));
}

namespace {

using StepSlices = std::vector<std::pair<std::size_t, Slice>>;

/// The parts of a device's slice that lie in steps.
void add_device_slice(const Timeline& timeline, Slice slice, StepSlices& slices) {
  const auto after = [&](const StepInfo& step) { return step.end_ns <= slice.begin_ns; };
  auto step = std::partition_point(timeline.steps.begin(), timeline.steps.end(), after);
  const Interval whole{slice.begin_ns, slice.end_ns};
  for (; step != timeline.steps.end() && step->begin_ns < whole.end; ++step) {
    slice.begin_ns = std::max(whole.begin, step->begin_ns);
    slice.end_ns = std::min(whole.end, step->end_ns);
    slice.self_ns = slice.duration_ns();
    slices.emplace_back(static_cast<std::size_t>(step - timeline.steps.begin()), slice);
  }
}

}  // namespace

std::vector<std::pair<std::size_t, Slice>> account_device_steps(const Timeline& timeline, int32_t step_lane) {
  StepSlices slices;
  const int32_t rank = timeline.lanes[static_cast<std::size_t>(step_lane)].rank;
  for_each_device_slice(timeline, rank, [&](const Slice& slice) { add_device_slice(timeline, slice, slices); });
  const IntervalSet busy = find_device_busy(timeline, rank);
  const auto idle_ns = [&](const Slice& slice) {
    return slice.duration_ns() - total(clip(busy, {slice.begin_ns, slice.end_ns}));
  };
  std::vector<std::size_t> open;  // indices of the slices around the next one
  for_each_lane_step_slice(timeline, step_lane, [&](std::size_t step, Slice slice) {
    while (!open.empty() && slices[open.back()].second.end_ns <= slice.begin_ns) open.pop_back();
    slice.self_ns = idle_ns(slice);
    if (!open.empty()) slices[open.back()].second.self_ns -= slice.self_ns;
    open.push_back(slices.size());
    slices.emplace_back(step, slice);
  });
  std::ranges::stable_sort(slices, {}, [](const auto& placed) {
    const Slice& slice = placed.second;
    return std::tuple(placed.first, slice.zone != Zone::kStep, slice.begin_ns, -slice.end_ns);
  });
  return slices;
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
