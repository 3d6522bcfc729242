#pragma once

#include <vector>

#include "profiler/report/timeline/report_input.h"
#include "profiler/report/views/table.h"

namespace ferry {

/// How `after` differs from `before`: one table per compared view, "phase_diff", "layer_type_diff", "operator_diff",
/// "transfer_diff", sorted by the absolute difference in time per step.
std::vector<Table> compare_captures(const ReportInput& before, const ReportInput& after);

}  // namespace ferry
