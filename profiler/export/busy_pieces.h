#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// When an operator was the innermost one at work on its lane, and did not wait.
struct BusyPiece {
  int32_t slice = 0;  // index into Timeline::slices
  int64_t begin_ns = 0, end_ns = 0;
};

/// The lane's, by begin, disjoint, none of them empty. Together they cover what the lane computed (find_activity()); those of
/// one operator add up to its own time.
std::vector<BusyPiece> find_busy_pieces(const Timeline& timeline, int32_t lane);

/// The rank's lane with most operators: where the work of its steps is; -1 if there are none.
int32_t find_main_lane(const Timeline& timeline, int32_t rank);

}  // namespace ferry
