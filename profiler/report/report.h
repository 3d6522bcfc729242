#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/page_data/step_choice.h"
#include "profiler/report/timeline/report_input.h"
#include "profiler/report/views/table.h"

namespace ferry {

/// Every table: make_views(), with that of the findings' actions, if they have any, in the second place.
std::vector<Table> make_report_tables(const ReportInput& input, const std::vector<Finding>& findings);

/// Findings first, with what to do about each, then every table, for a terminal.
std::string make_report_text(const std::vector<Finding>& findings, const std::vector<Table>& tables);

/// Writes report.txt, report.html, report.json (findings and tables) and csv/<table>.csv into `directory`, which exists. The
/// page holds the timelines of `steps` whatever they take, up to 24 MB, and of others as far as they fit. Returns the text of
/// report.txt. Throws Error{kUnavailable} with the system's reason.
std::string write_report(const std::filesystem::path& directory, const ReportInput& input, FindFindings find = find_problems,
                         StepRange steps = {});

}  // namespace ferry
