#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/views/table.h"

namespace ferry {

/// One self-contained HTML page: styles, scripts and data inline, nothing fetched, works from file://. `title` names the run.
/// The data is the JSON of <script type="application/json" id="report-data">:
///   {"title":…,"findings":[{"severity":"info|notice|problem","kind":…,"text":…,"table":…}],
///    "tables":[to_json(table) and "num_rows": how many the table really has],"timelines":`timelines`,
///    "files":`files`}
/// A long table is embedded with its first rows only, so that the page stays below 3 MB with timelines of kTimelineBytes; it
/// says so. Whole numbers that JavaScript cannot hold (beyond 2^53) are embedded as strings of their digits; bytes that are no
/// UTF-8 become U+FFFD. `timelines` is what make_step_timelines() made (page_data/step_timelines.h), null: none. `files` lie
/// beside the page and are linked to; names of folders end with '/'.
std::string make_report_page(const std::string& title, const std::vector<Finding>& findings, const std::vector<Table>& tables,
                             const nlohmann::ordered_json& timelines, const std::vector<std::string>& files = {});

}  // namespace ferry
