#include "profiler/export/ascend_overlap.h"

#include <algorithm>
#include <vector>

namespace ferry {
namespace {

IntervalSet cut_at_steps(const IntervalSet& intervals, const std::vector<StepInfo>& steps) {
  std::vector<int64_t> edges;
  for (const StepInfo& step : steps) edges.insert(edges.end(), {step.begin_ns, step.end_ns});
  std::sort(edges.begin(), edges.end());
  IntervalSet pieces;
  for (Interval rest : intervals) {
    for (auto edge = std::upper_bound(edges.begin(), edges.end(), rest.begin); edge != edges.end() && *edge < rest.end;
         ++edge) {
      if (*edge == rest.begin) continue;
      pieces.push_back({rest.begin, *edge});
      rest.begin = *edge;
    }
    pieces.push_back(rest);
  }
  return pieces;
}

}  // namespace

std::array<IntervalSet, 4> find_overlap(const AscendRank& rank) {
  const Timeline& timeline = rank.input.timeline;
  const RankActivity& activity = rank.input.activity.at(static_cast<std::size_t>(rank.capture.rank));
  const Interval whole{timeline.begin_ns, timeline.end_ns};
  const IntervalSet computing = clip(activity.computing, whole);
  const IntervalSet communication = clip(activity.communication, whole);
  return {cut_at_steps(computing, timeline.steps), cut_at_steps(communication, timeline.steps),
          cut_at_steps(subtract(communication, computing), timeline.steps),
          cut_at_steps(subtract(make_interval_set({whole}), unite(computing, communication)), timeline.steps)};
}

}  // namespace ferry
