#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profiler/export/ascend_rank.h"
#include "profiler/report/timeline/breakdown.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

/// From the step's begin to the first thing that the rank computes or has in flight; the whole step if there is none.
int64_t find_preparing_ns(const RankActivity& activity, Interval window) {
  int64_t begin_ns = window.end;
  for (const IntervalSet* set : {&activity.computing, &activity.communication}) {
    const auto first = std::partition_point(set->begin(), set->end(), [&](const Interval& i) { return i.end <= window.begin; });
    if (first != set->end()) begin_ns = std::min(begin_ns, std::max(first->begin, window.begin));
  }
  return begin_ns - window.begin;
}

/// When one of the rank's threads waited for another rank: what the readers call a bubble.
IntervalSet find_peer_waits(const AscendRank& rank) {
  std::vector<Interval> waits;
  for (const int32_t lane : rank.lanes) {
    const auto [first, last] = rank.input.timeline.lane_range(lane);
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = rank.input.timeline.slices[static_cast<std::size_t>(i)];
      if (is_peer_wait(slice.zone)) waits.push_back({slice.begin_ns, slice.end_ns});
    }
  }
  return make_interval_set(std::move(waits));
}

/// Count, sum, extremes and variance in one pass (Welford).
struct Spread {
  int64_t count = 0, total_ns = 0, min_ns = 0, max_ns = 0;
  double mean_us = 0, squares = 0;

  void add(int64_t ns) {
    min_ns = count == 0 ? ns : std::min(min_ns, ns);
    max_ns = std::max(max_ns, ns);
    total_ns += ns;
    ++count;
    const double us = static_cast<double>(ns) / 1e3;
    const double before = us - mean_us;
    mean_us += before / static_cast<double>(count);
    squares += before * (us - mean_us);
  }
};

}  // namespace

std::vector<AscendStepTime> find_step_times(const AscendRank& rank) {
  const RankActivity& activity = rank.input.activity.at(static_cast<std::size_t>(rank.capture.rank));
  const IntervalSet waiting = find_peer_waits(rank);
  std::vector<AscendStepTime> times;
  times.reserve(rank.input.timeline.steps.size());
  for (const StepInfo& step : rank.input.timeline.steps) {
    const Interval window{step.begin_ns, step.end_ns};
    const Breakdown b = break_down(activity, window);
    const int64_t bubble_ns = total(clip(waiting, window));
    times.push_back({step.step,
                     {b.computing, b.exposed, b.overlapped, b.communication, b.free, b.window - bubble_ns, bubble_ns,
                      std::max<int64_t>(b.exposed - bubble_ns, 0), find_preparing_ns(activity, window)}});
  }
  return times;
}

void write_step_trace_time(const AscendRank& rank, TextFile& out) {
  out << "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
         "Communication(Not Overlapped and Exclude Receive),Preparing\n";
  for (const AscendStepTime& step : find_step_times(rank)) {
    out << rank.device << "," << int64_t{step.step};
    for (const int64_t ns : step.ns) (out << ",").scaled(ns, 3);
    out << "\n";
  }
}

void write_api_statistic(const AscendRank& rank, TextFile& out) {
  const Timeline& timeline = rank.input.timeline;
  std::map<Zone, Spread> spreads;
  for (const int32_t lane : rank.lanes) {
    if (timeline.lanes[static_cast<std::size_t>(lane)].kind != Lane::Kind::kThread) continue;
    const auto [first, last] = timeline.lane_range(lane);
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
      if (kind_of(slice) != ZoneKind::kCompute) spreads[slice.zone].add(slice.duration_ns());
    }
  }
  out << "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\n";
  for (const auto& [zone, spread] : spreads) {
    const ZoneInfo& info = zone_info(zone);
    out << rank.device << "," << host_level(info.kind) << "," << info.name << ",";
    out.scaled(spread.total_ns, 3) << "," << spread.count << ",";
    out.rounded(spread.mean_us, 3) << ",";
    out.scaled(spread.min_ns, 3) << ",";
    out.scaled(spread.max_ns, 3) << ",";
    out.rounded(spread.squares / static_cast<double>(spread.count), 3) << "\n";
  }
}

}  // namespace ferry
