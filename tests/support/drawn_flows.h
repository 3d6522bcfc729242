#pragma once

#include <algorithm>
#include <cstddef>

#include "profiler/report/timeline/timeline.h"

namespace ferry::test {

/// Arrows between three slices that are not empty; those of a worker without rows are.
inline std::size_t num_drawn_flows(const Timeline& timeline) {
  const auto is_empty = [&](int32_t slice) { return timeline.slices[static_cast<std::size_t>(slice)].duration_ns() == 0; };
  return static_cast<std::size_t>(std::count_if(timeline.flows.begin(), timeline.flows.end(), [&](const Flow& flow) {
    return !is_empty(flow.dispatch) && !is_empty(flow.experts) && !is_empty(flow.combine);
  }));
}

}  // namespace ferry::test
