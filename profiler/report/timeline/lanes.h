#pragma once

#include <vector>

#include "profiler/report/timeline/timeline.h"

// How slices come onto the lanes of a timeline.

namespace ferry {

/// Appends `slices` as one lane: sorted, nested, with self times. A slice that would stick out of the one around it is cut.
void append_lane(Timeline& timeline, Lane lane, std::vector<Slice> slices);

/// Groups of slices that must stay together (a request; a message) shared out over as few lanes as keep them apart.
std::vector<std::vector<Slice>> share_lanes(std::vector<std::vector<Slice>> groups);

}  // namespace ferry
