#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// Spans of a device overlap where operators ran side by side. Here each moment is one operator's: where several ran, the time
/// is divided by what each needs, in the order in which they were handed in. So slices are disjoint and cover what the spans
/// cover, to the nanosecond; which part of a shared stretch is whose is an estimate, and Slice::num_beside says that there
/// were others. A slice that does not follow its own last piece is a continued one.
///
/// needs[i] of slices[i], in any unit; where one of those side by side is 0 (not known) they have equal parts.
std::vector<Slice> share_device_time(const std::vector<Slice>& slices, const std::vector<double>& needs);

}  // namespace ferry
