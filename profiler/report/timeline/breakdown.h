#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/timeline/intervals.h"
#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// A rank's time by what it did, over the whole capture. `computing` is when at least one of its threads was inside an
/// operator (waits cut out); `communication` is when one of its messages was in flight.
struct RankActivity {
  IntervalSet computing, communication;
};

/// [world_size], by rank.
std::vector<RankActivity> find_activity(const Timeline& timeline, int32_t world_size);

/// How a window of a rank divides, in ns. computing + exposed + free is the window's length exactly; overlapped + exposed is
/// communication.
struct Breakdown {
  int64_t window = 0, computing = 0, communication = 0, overlapped = 0, exposed = 0, free = 0;
};
Breakdown break_down(const RankActivity& activity, Interval window);

}  // namespace ferry
