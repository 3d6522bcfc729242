#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/critical_path/path_piece.h"
#include "profiler/report/timeline/report_input.h"

// What the length of a step was made of, on whichever rank: from its end backwards, always that which everything after it had
// to wait for. Where the coordinator waits for a reply the path goes through the message to the worker that sent it, over what
// that did before, and through the rows that it waited for back to the coordinator. What is not on the path could have taken
// longer, and the step would have been as long; what is on it, and took less, would have made it shorter, until something
// else is.

namespace ferry {

/// By step, then begin. The pieces of a step lie end to end and cover it exactly, so their lengths add up to the step; none is
/// empty. Where clocks are off by so much that a message seems to come before it was sent, its flight has no length.
std::vector<PathPiece> find_critical_path(const ReportInput& input);

/// [timeline.steps.size()] the rank whose step each is: 0, but of captures that were joined the coordinator of its own one.
std::vector<int32_t> find_coordinators(const Timeline& timeline);

}  // namespace ferry
