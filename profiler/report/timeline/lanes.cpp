#include "profiler/report/timeline/lanes.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "profiler/report/timeline/intervals.h"

namespace ferry {
namespace {

bool drawn_before(const Slice& x, const Slice& y) {
  return std::tuple(x.begin_ns, -x.end_ns) < std::tuple(y.begin_ns, -y.end_ns);
}

}  // namespace

void append_lane(Timeline& timeline, Lane lane, std::vector<Slice> slices) {
  const auto lane_idx = static_cast<int32_t>(timeline.lanes.size());
  timeline.lanes.push_back(std::move(lane));
  std::stable_sort(slices.begin(), slices.end(), drawn_before);
  std::vector<std::size_t> open;  // indices of the slices around the next one
  for (Slice& slice : slices) {
    slice.lane = lane_idx;
    while (!open.empty() && timeline.slices[open.back()].end_ns <= slice.begin_ns) open.pop_back();
    if (!open.empty()) slice.end_ns = std::min(slice.end_ns, timeline.slices[open.back()].end_ns);
    const bool is_share = slice.zone == Zone::kPoolTask && !open.empty();  // of the operator around it
    slice.self_ns = is_share ? 0 : slice.duration_ns();
    if (!open.empty() && !is_share) timeline.slices[open.back()].self_ns -= slice.duration_ns();
    open.push_back(timeline.slices.size());
    timeline.slices.push_back(slice);
  }
}

std::vector<std::vector<Slice>> share_lanes(std::vector<std::vector<Slice>> groups) {
  const auto span_of = [](const std::vector<Slice>& group) {
    Interval span{group.front().begin_ns, group.front().end_ns};
    for (const Slice& slice : group) span = {std::min(span.begin, slice.begin_ns), std::max(span.end, slice.end_ns)};
    return span;
  };
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const auto& x, const auto& y) { return span_of(x).begin < span_of(y).begin; });
  std::vector<std::vector<Slice>> lanes;
  std::vector<int64_t> lane_ends;
  for (std::vector<Slice>& group : groups) {
    const Interval span = span_of(group);
    std::size_t lane = 0;
    while (lane < lanes.size() && lane_ends[lane] > span.begin) ++lane;
    if (lane == lanes.size()) {
      lanes.emplace_back();
      lane_ends.push_back(0);
    }
    lanes[lane].insert(lanes[lane].end(), group.begin(), group.end());
    lane_ends[lane] = span.end;
  }
  return lanes;
}

}  // namespace ferry
