#pragma once

#include <vector>

#include "profiler/report/findings/findings.h"

namespace ferry {

/// One for each incident, named for the worst in it: "worker_lost", "worker_late", "worker_left", "worker_joined" or
/// "experts_moved", and what it cost, or that this cannot be told.
std::vector<Finding> find_worker_changes(const ReportInput& input);

}  // namespace ferry
