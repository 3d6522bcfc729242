#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "profiler/report/timeline/report_input.h"

// How views walk over a capture: the steps of the coordinator, the slices inside them, the clocks between ranks.

namespace ferry {

inline constexpr int kNumPhases = 3;
inline constexpr Phase kPhases[kNumPhases] = {Phase::kPrefill, Phase::kDecode, Phase::kMixed};

/// The lane that the coordinator's steps run on, -1 if there is none.
int32_t find_step_lane(const Timeline& timeline);

/// The lane's slices that lie in a step, with the step's index; shares of operators count as those.
template <class Visit>
void for_each_lane_step_slice(const Timeline& timeline, int32_t lane, Visit&& visit) {
  const auto [first, last] = timeline.lane_range(lane);
  std::size_t step = 0;
  for (int32_t i = first; i < last; ++i) {
    const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
    while (step < timeline.steps.size() && timeline.steps[step].end_ns <= slice.begin_ns) ++step;
    if (step == timeline.steps.size()) return;
    if (slice.is_of_operator()) continue;
    if (slice.begin_ns >= timeline.steps[step].begin_ns && slice.end_ns <= timeline.steps[step].end_ns) visit(step, slice);
  }
}

/// Whether the rank has a lane of a device.
bool has_device_lane(const Timeline& timeline, int32_t rank);

/// When the rank's devices ran anything.
IntervalSet find_device_busy(const Timeline& timeline, int32_t rank);

/// What the steps of a coordinator with a device are made of, as for_each_step_slice() hands it out: what its device did, cut
/// to the step, and of the slices on its step lane, at their own times, that part of the own time in which the device did
/// nothing. By step and begin, the step's own slice first.
std::vector<std::pair<std::size_t, Slice>> account_device_steps(const Timeline& timeline, int32_t step_lane);

/// Calls visit(step, slice) for every slice on the coordinator's step lane that lies in a step, the step's own slice first;
/// `step` is an index into timeline.steps. A step's self times add up to its length: if the coordinator has a device, it is the
/// device's time, and the host's only while that has nothing to do.
template <class Visit>
void for_each_step_slice(const Timeline& timeline, Visit&& visit) {
  const int32_t lane = find_step_lane(timeline);
  if (lane < 0) return;
  if (has_device_lane(timeline, timeline.lanes[static_cast<std::size_t>(lane)].rank)) {
    for (const auto& [step, slice] : account_device_steps(timeline, lane)) visit(step, slice);
    return;
  }
  for_each_lane_step_slice(timeline, lane, visit);
}

/// The step that a number stands for.
class StepIndex {
 public:
  explicit StepIndex(const Timeline& timeline);
  /// Index into timeline.steps, -1 if the capture has no such step.
  int32_t find(uint32_t step) const;

 private:
  std::vector<std::pair<uint32_t, int32_t>> steps_;  // by number
};

/// Index into kPhases; what no scheduler writes counts as mixed.
inline std::size_t phase_index(const StepInfo& step) {
  return step.phase <= Phase::kMixed ? static_cast<std::size_t>(step.phase) : static_cast<std::size_t>(Phase::kMixed);
}

/// How views group steps: by phase, and those of a section by section. The phases come first, then timeline.sections.
std::vector<std::string> step_groups(const Timeline& timeline);
inline std::size_t group_index(const StepInfo& step) {
  return step.section < 0 ? phase_index(step) : static_cast<std::size_t>(kNumPhases + step.section);
}
/// Steps by group.
std::vector<int64_t> count_steps(const Timeline& timeline);
/// Sum of the lengths of all steps, in ns.
int64_t total_step_ns(const Timeline& timeline);

/// Layers that the capture speaks of.
int64_t count_layers(const ReportInput& input);

/// How wrong a time of one rank may be when compared with the other's, in ns.
double clock_bound_ns(const ReportInput& input, int32_t rank, int32_t other);
/// "Clocks of different ranks agree to within 1.250 us; …": belongs beside every figure that compares ranks.
std::string clock_note(const ReportInput& input);

/// Whether the zone is a wait for another rank.
bool is_peer_wait(Zone zone);

inline double to_us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace ferry
