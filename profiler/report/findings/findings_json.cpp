#include "profiler/report/findings/findings_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "profiler/report/findings/action_text.h"

namespace ferry {

nlohmann::ordered_json findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json found = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json one = {{"severity", severity_name(finding.severity)},
                                  {"kind", finding.kind},
                                  {"text", finding.text},
                                  {"table", finding.table}};
    if (finding.rank >= 0) one["rank"] = finding.rank;
    if (finding.rank >= 0 || finding.saved_ms > 0) {
      one["saved_ms"] = finding.saved_ms;
      one["saved_share"] = finding.saved_share;
    }
    if (!finding.actions.empty()) one["actions"] = actions_json(finding.actions);
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace ferry
