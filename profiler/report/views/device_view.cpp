#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// One rank's sums over the steps of a group.
struct DeviceSums {
  int64_t steps = 0, window = 0, busy = 0, copying = 0, handing_over = 0;  // ns
  int64_t submissions = 0, dispatches = 0, barriers = 0;
};

/// When the rank's device was in such a span.
std::vector<Interval> find_spans(const Timeline& timeline, int32_t rank, Zone zone) {
  std::vector<Interval> spans;
  for (const Slice& slice : timeline.slices) {
    const Lane& lane = timeline.lanes[static_cast<std::size_t>(slice.lane)];
    if (slice.zone == zone && lane.rank == rank && lane.kind == Lane::Kind::kDevice)
      spans.push_back({slice.begin_ns, slice.end_ns});
  }
  return spans;
}

/// By group, as step_groups() has them.
std::vector<DeviceSums> device_sums(const ReportInput& input, int32_t rank) {
  const Timeline& timeline = input.timeline;
  const StepIndex index(timeline);
  const IntervalSet busy = find_device_busy(timeline, rank);
  const IntervalSet copying = make_interval_set(find_spans(timeline, rank, Zone::kDeviceCopy));
  std::vector<DeviceSums> groups(step_groups(timeline).size());
  for (const StepInfo& step : timeline.steps) {
    DeviceSums& sums = groups[group_index(step)];
    const Interval window{step.begin_ns, step.end_ns};
    ++sums.steps;
    sums.window += window.end - window.begin;
    sums.busy += total(clip(busy, window));
    sums.copying += total(clip(copying, window));
  }
  const auto sums_of = [&](uint32_t number) -> DeviceSums* {
    const int32_t step = index.find(number);
    return step < 0 ? nullptr : &groups[group_index(timeline.steps[static_cast<std::size_t>(step)])];
  };
  for (const CounterSample& sample : timeline.counters) {
    DeviceSums* const sums = sample.rank == rank ? sums_of(sample.at.step) : nullptr;
    if (sums == nullptr) continue;
    if (sample.zone == Zone::kDeviceBarriers) sums->barriers += sample.value;
    if (sample.zone != Zone::kDeviceDispatches) continue;
    sums->dispatches += sample.value;
    ++sums->submissions;
  }
  for (const Slice& slice : timeline.slices) {
    if (!slice.is_handed_over || timeline.lanes[static_cast<std::size_t>(slice.lane)].rank != rank) continue;
    if (DeviceSums* const sums = sums_of(slice.step)) sums->handing_over += slice.self_ns;
  }
  return groups;
}

}  // namespace

Table make_device_view(const ReportInput& input) {
  Table table{.id = "device",
              .title = "Devices",
              .note =
                  "What the GPU of a rank did in the coordinator's steps, a step, by its own timestamps. busy: it ran what was "
                  "handed over, copies among it; idle: its queue was empty; busy + idle = wall. handing_over: the host told it "
                  "what to do, which matters where the queue was empty meanwhile. Barriers are those between commands. "
                  "clock_bound: by which its spans may be off the rank's clock.",
              .columns = {{"rank"},
                          {"device"},
                          {"phase"},
                          {"steps"},
                          {"wall_us", 3},
                          {"busy_us", 3},
                          {"idle_us", 3},
                          {"busy_share", 4},
                          {"copy_us", 3},
                          {"handing_over_us", 3},
                          {"dispatches", 1},
                          {"barriers", 1},
                          {"submissions", 1},
                          {"clock"},
                          {"clock_bound_us", 3}}};
  const std::vector<std::string> groups = step_groups(input.timeline);
  for (const RankCapture& rank : input.capture.ranks) {
    if (rank.device.name.empty()) continue;
    const bool has_spans = !rank.device.clock.starts_with("none");
    const std::vector<DeviceSums> sums_of = device_sums(input, rank.rank);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const DeviceSums& sums = sums_of[g];
      if (sums.steps == 0) continue;
      const auto steps = static_cast<double>(sums.steps);
      const auto us = [&](int64_t ns) { return cell_if(has_spans, to_us(ns) / steps); };
      const auto count = [&](int64_t n) { return static_cast<double>(n) / steps; };
      table.rows.push_back({int64_t{rank.rank}, rank.device.name, groups[g], sums.steps, to_us(sums.window) / steps,
                            us(sums.busy), us(sums.window - sums.busy),
                            cell_if(has_spans, static_cast<double>(sums.busy) / static_cast<double>(sums.window)),
                            us(sums.copying), us(sums.handing_over), count(sums.dispatches), count(sums.barriers),
                            count(sums.submissions), rank.device.clock, cell_if(has_spans, rank.device.clock_bound_ns / 1e3)});
    }
  }
  return table;
}

}  // namespace ferry
