#include "profiler/report/critical_path/rank_work.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace ferry {
namespace {

using Stretch = RankWork::Stretch;

/// How surely a thread is the one whose work the rank's steps are made of.
int rate(const Timeline& timeline, int32_t lane) {
  const auto [first, last] = timeline.lane_range(lane);
  int best = first < last ? 1 : 0;
  for (int32_t i = first; i < last; ++i) {
    const Zone zone = timeline.slices[static_cast<std::size_t>(i)].zone;
    if (zone == Zone::kStep) return 3;
    if (zone == Zone::kWaitDispatch || zone == Zone::kExperts) best = 2;
  }
  return best;
}

int32_t find_lane(const Timeline& timeline, int32_t rank) {
  int32_t found = -1;
  int best = 0;
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    const Lane& lane = timeline.lanes[l];
    if (lane.rank != rank || lane.kind != Lane::Kind::kThread) continue;
    const int rating = rate(timeline, static_cast<int32_t>(l));
    if (rating > best) {
      best = rating;
      found = static_cast<int32_t>(l);
    }
  }
  return found;
}

/// Nested slices of a lane as those parts of each in which nothing is nested.
std::vector<Stretch> flatten(const Timeline& timeline, int32_t lane) {
  std::vector<Stretch> flat;
  std::vector<int32_t> open;  // the slices around the next one
  int64_t at_ns = 0;          // up to which `flat` is complete
  const auto end_of = [&](int32_t slice) { return timeline.slices[static_cast<std::size_t>(slice)].end_ns; };
  const auto reach = [&](int64_t end_ns) {
    if (end_ns > at_ns) flat.push_back({at_ns, end_ns, open.back()});
    at_ns = std::max(at_ns, end_ns);
  };
  const auto [first, last] = timeline.lane_range(lane);
  for (int32_t i = first; i <= last; ++i) {
    if (i < last && timeline.slices[static_cast<std::size_t>(i)].is_of_operator()) continue;
    const int64_t begin_ns =
        i < last ? timeline.slices[static_cast<std::size_t>(i)].begin_ns : std::numeric_limits<int64_t>::max();
    while (!open.empty() && end_of(open.back()) <= begin_ns) {
      reach(end_of(open.back()));
      open.pop_back();
    }
    if (i == last) break;
    if (!open.empty()) reach(begin_ns);
    at_ns = begin_ns;
    open.push_back(i);
  }
  return flat;
}

/// Of a rank's devices; where several ran something, the first one's.
std::vector<Stretch> flatten_devices(const Timeline& timeline, int32_t rank) {
  std::vector<Stretch> all;
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    if (timeline.lanes[l].rank != rank || timeline.lanes[l].kind != Lane::Kind::kDevice) continue;
    const std::vector<Stretch> flat = flatten(timeline, static_cast<int32_t>(l));
    all.insert(all.end(), flat.begin(), flat.end());
  }
  std::ranges::stable_sort(all, {}, &Stretch::begin_ns);
  std::vector<Stretch> apart;
  for (Stretch stretch : all) {
    if (!apart.empty()) stretch.begin_ns = std::max(stretch.begin_ns, apart.back().end_ns);
    if (stretch.begin_ns < stretch.end_ns) apart.push_back(stretch);
  }
  return apart;
}

/// `above`, and of `below` what lies between.
std::vector<Stretch> lay_over(const std::vector<Stretch>& above, const std::vector<Stretch>& below) {
  std::vector<Stretch> laid = above;
  auto next = above.begin();
  for (const Stretch& stretch : below) {
    while (next != above.end() && next->end_ns <= stretch.begin_ns) ++next;
    int64_t begin_ns = stretch.begin_ns;
    for (auto over = next; begin_ns < stretch.end_ns; ++over) {
      const bool is_over = over != above.end() && over->begin_ns < stretch.end_ns;
      const int64_t end_ns = is_over ? over->begin_ns : stretch.end_ns;
      if (begin_ns < end_ns) laid.push_back({begin_ns, end_ns, stretch.slice});
      if (!is_over) break;
      begin_ns = over->end_ns;
    }
  }
  std::ranges::sort(laid, {}, &Stretch::begin_ns);
  return laid;
}

}  // namespace

RankWork::RankWork(const Timeline& timeline, int32_t rank) : lane_(find_lane(timeline, rank)) {
  if (lane_ >= 0) stretches_ = flatten(timeline, lane_);
  const std::vector<Stretch> devices = flatten_devices(timeline, rank);
  if (!devices.empty()) stretches_ = lay_over(devices, stretches_);
}

RankWork::Stretch RankWork::before(int64_t at_ns) const {
  const auto after =
      std::partition_point(stretches_.begin(), stretches_.end(), [&](const Stretch& s) { return s.begin_ns < at_ns; });
  if (after == stretches_.begin()) return {std::numeric_limits<int64_t>::min(), at_ns};
  const Stretch& last = *std::prev(after);
  if (last.end_ns < at_ns) return {last.end_ns, at_ns};
  return {last.begin_ns, at_ns, last.slice};
}

}  // namespace ferry
