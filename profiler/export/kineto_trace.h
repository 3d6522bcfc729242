#pragma once

#include <filesystem>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Writes `directory`/rank-<r>.pt.trace.json for every rank, as PyTorch's profiler (Kineto) writes a process's trace:
/// HolisticTraceAnalysis takes the folder as it is, and TensorBoard's PyTorch plugin as a run. Throws Error{kUnavailable} with
/// the system's reason.
void write_kineto_traces(const ReportInput& input, const std::filesystem::path& directory);

}  // namespace ferry
