#pragma once

#include <string>
#include <vector>

#include "profiler/report/findings/action.h"
#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// A sentence that says what is wrong, whose fault it is, and by how much: the report's first lines.
struct Finding {
  enum class Severity { kInfo, kNotice, kProblem };
  Severity severity = Severity::kInfo;
  std::string
      kind;  // "stopped", "no_core", "slow_link", "uneven_rows", "hot_expert", "slow_rank", "starved", …: stable, for scripts
  std::string text;   // one sentence with numbers and units
  std::string table;  // id of the table that shows it
  int32_t rank = -1;  // whose fault it is, of those that name one
  // Of those that know what they cost:
  double saved_ms = 0;            // by which the capture's steps would be shorter without it
  double saved_share = 0;         // of the time in steps
  std::vector<Action> actions{};  // what to do about it, best first; of those who look for problems alone empty
};

/// "problem", "notice" or "info".
const char* severity_name(Finding::Severity severity);

/// What puts the capture itself in doubt first; then by the milliseconds that steps would save, the most first: without what is
/// found or by the best of its actions, whichever is more. Where that is the same, and among those that nothing is known of,
/// the worst severity first.
void sort_findings(std::vector<Finding>& findings);

/// As sort_findings() has them. Says so when nothing stands out.
std::vector<Finding> find_problems(const ReportInput& input);

/// Who makes a report's findings: find_problems(), or one who knows what to do about them as well.
using FindFindings = std::vector<Finding> (*)(const ReportInput& input);

}  // namespace ferry
