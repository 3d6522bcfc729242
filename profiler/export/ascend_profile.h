#pragma once

#include <filesystem>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Writes one `<host>_<pid>_<timestamp>_ascend_pt/` folder per rank under `directory`, as MindStudio Insight and
/// msprof-analyze expect them. Throws Error{kUnavailable} with the system's reason.
void write_ascend_profiles(const ReportInput& input, const std::filesystem::path& directory);

}  // namespace ferry
