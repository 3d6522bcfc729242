#pragma once

#include <cstdint>

#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// Where a call is shown to end. Readers take a call that begins where another ends to be inside of it (some since they add
/// floating-point numbers): one that ends where the next of its lane begins ends a nanosecond earlier. `last`: the end of the
/// lane's slices.
int64_t shown_end_ns(const Timeline& timeline, int32_t slice, int32_t last);
/// Likewise of a step, one of timeline.steps.
int64_t shown_end_ns(const Timeline& timeline, const StepInfo& step);

}  // namespace ferry
