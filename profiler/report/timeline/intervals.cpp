#include "profiler/report/timeline/intervals.h"

#include <algorithm>

namespace ferry {

IntervalSet make_interval_set(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end <= i.begin; });
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const Interval& next : intervals) {
    if (kept > 0 && next.begin <= intervals[kept - 1].end) {
      intervals[kept - 1].end = std::max(intervals[kept - 1].end, next.end);
    } else {
      intervals[kept++] = next;
    }
  }
  intervals.resize(kept);
  return intervals;
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> both(a);
  both.insert(both.end(), b.begin(), b.end());
  return make_interval_set(std::move(both));
}

IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval piece{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (piece.begin < piece.end) common.push_back(piece);
    (a[i].end < b[j].end ? i : j) += 1;
  }
  return common;
}

IntervalSet subtract(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet rest;
  std::size_t j = 0;
  for (Interval piece : a) {
    while (j < b.size() && b[j].end <= piece.begin) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin < piece.end; ++k) {
      if (b[k].begin > piece.begin) rest.push_back({piece.begin, b[k].begin});
      piece.begin = std::max(piece.begin, b[k].end);
    }
    if (piece.begin < piece.end) rest.push_back(piece);
  }
  return rest;
}

IntervalSet clip(const IntervalSet& a, Interval window) {
  IntervalSet inside;
  auto it = std::partition_point(a.begin(), a.end(), [&](const Interval& i) { return i.end <= window.begin; });
  for (; it != a.end() && it->begin < window.end; ++it) {
    const Interval piece{std::max(it->begin, window.begin), std::min(it->end, window.end)};
    if (piece.begin < piece.end) inside.push_back(piece);
  }
  return inside;
}

int64_t total(const IntervalSet& a) {
  int64_t sum = 0;
  for (const Interval& i : a) sum += i.end - i.begin;
  return sum;
}

}  // namespace ferry
