#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/views/table.h"

namespace ferry {

/// "try: … (predicted: decode ×4 tokens/s from 2100 to 2352, 12 % more ± 4)": a line. From +200 % on
/// "26 × as many ± 2".
std::string action_text(const Action& action);

/// [{"kind":…,"text":…,"option":…,"from":…,"to":…,"command":…,"metric":…,"before":…,"after":…,"prediction":…,
/// "saved_ms":…,"saved_share":…,"error_share":…,"assumes":…}]
nlohmann::ordered_json actions_json(const std::vector<Action>& actions);

/// "action": those of all findings, the one that saves most first; without rows if there are none.
Table make_action_view(const std::vector<Finding>& findings);

}  // namespace ferry
