#pragma once

#include <vector>

#include "profiler/report/findings/findings.h"

namespace ferry {

/// "worker_lost" or "worker_late" for each worker that came to stand so during the capture: how many rows others had to
/// answer, and by how much the steps in which that happened were longer than the median of their phase.
std::vector<Finding> find_worker_changes(const ReportInput& input);

}  // namespace ferry
