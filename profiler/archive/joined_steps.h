#pragma once

#include <vector>

#include "profiler/capture.h"

namespace ferry {

/// Captures of kept steps of one run as one capture: each step once, at its own time, with nothing between them. `captures` are
/// of one server and the same ranks, at least one.
Capture join_steps(std::vector<Capture> captures);

}  // namespace ferry
