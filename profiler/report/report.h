#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/timeline/report_input.h"
#include "profiler/report/views/table.h"

namespace ferry {

/// Findings first, then every table, for a terminal.
std::string make_report_text(const std::vector<Finding>& findings, const std::vector<Table>& tables);

/// Writes report.txt, report.html, report.json (findings and tables) and csv/<table>.csv into `directory`, which exists. Throws
/// Error{kUnavailable} with the system's reason.
void write_report(const std::filesystem::path& directory, const ReportInput& input);

}  // namespace ferry
