#pragma once

#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Refuses captures whose times mean different things: of other models, of other commands, of prompts of other lengths. Throws
/// Error{kInvalidArgument}, a line that names what differs. Returns what makes a comparison weaker, a line each: other
/// versions, hosts, lengths of answers, machines that are not as fast.
std::vector<std::string> check_same_work(const ReportInput& before, const ReportInput& after);

/// A line for each of the two whose steps were kept for their lengths.
std::vector<std::string> selection_warnings(const CaptureInfo& before, const CaptureInfo& after);

}  // namespace ferry
