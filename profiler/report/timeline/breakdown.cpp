#include "profiler/report/timeline/breakdown.h"

#include "runtime/base/check.h"

namespace ferry {

std::vector<RankActivity> find_activity(const Timeline& timeline, int32_t world_size) {
  struct Spans {
    std::vector<Interval> computing, communication;
  };
  std::vector<Spans> found(static_cast<std::size_t>(world_size));
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    const Lane& lane = timeline.lanes[l];
    FERRY_CHECK(lane.rank >= 0 && lane.rank < world_size) << " rank " << lane.rank;
    Spans& spans = found[static_cast<std::size_t>(lane.rank)];
    const auto [first, last] = timeline.lane_range(static_cast<int32_t>(l));
    // A wait inside an operator is not the operator's: the lane's operators without the lane's waits.
    std::vector<Interval> computing, waiting;
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
      switch (kind_of(slice)) {
        case ZoneKind::kCompute: computing.push_back({slice.begin_ns, slice.end_ns}); break;
        case ZoneKind::kWait: waiting.push_back({slice.begin_ns, slice.end_ns}); break;
        case ZoneKind::kTransfer: spans.communication.push_back({slice.begin_ns, slice.end_ns}); break;
        default: break;
      }
    }
    const IntervalSet busy = subtract(make_interval_set(std::move(computing)), make_interval_set(std::move(waiting)));
    spans.computing.insert(spans.computing.end(), busy.begin(), busy.end());
  }
  std::vector<RankActivity> activity;
  for (Spans& spans : found)
    activity.push_back({make_interval_set(std::move(spans.computing)), make_interval_set(std::move(spans.communication))});
  return activity;
}

Breakdown break_down(const RankActivity& activity, Interval window) {
  const IntervalSet computing = clip(activity.computing, window);
  const IntervalSet communication = clip(activity.communication, window);
  Breakdown b;
  b.window = window.end - window.begin;
  b.computing = total(computing);
  b.communication = total(communication);
  b.overlapped = total(intersect(computing, communication));
  b.exposed = total(subtract(communication, computing));
  b.free = total(subtract({window}, unite(computing, communication)));
  return b;
}

}  // namespace ferry
