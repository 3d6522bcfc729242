#pragma once

#include <cstdint>
#include <vector>

// Sets of time as sorted, disjoint, half-open intervals of nanoseconds.

namespace ferry {

struct Interval {
  int64_t begin = 0, end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Sorted by begin; neighbours neither overlap nor touch; none is empty.
using IntervalSet = std::vector<Interval>;

/// The union of any intervals, in any order; empty and inverted ones are dropped.
IntervalSet make_interval_set(std::vector<Interval> intervals);
IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);
IntervalSet subtract(const IntervalSet& a, const IntervalSet& b);
IntervalSet clip(const IntervalSet& a, Interval window);
int64_t total(const IntervalSet& a);

}  // namespace ferry
