#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "profiler/report/findings/findings.h"

namespace ferry {

/// [{"severity":…,"kind":…,"text":…,"table":…}], as report.json and the page have them. Of a finding that names a rank also
/// "rank", of one that knows its cost "saved_ms" and "saved_share"; of one with something to try "actions" (action_text.h).
nlohmann::ordered_json findings_json(const std::vector<Finding>& findings);

}  // namespace ferry
