#pragma once

#include <string>
#include <vector>

#include "profiler/report/report_input.h"

namespace ferry {

/// A sentence that says what is wrong, whose fault it is, and by how much: the report's first lines.
struct Finding {
  enum class Severity { kInfo, kNotice, kProblem };
  Severity severity = Severity::kInfo;
  std::string kind;   // "straggler", "hot_expert", "starved", "lost_records", "clock", …: stable, for scripts
  std::string text;   // one sentence with numbers and units
  std::string table;  // id of the table that shows it
};

/// Worst first. Says so when nothing stands out.
std::vector<Finding> find_problems(const ReportInput& input);

}  // namespace ferry
