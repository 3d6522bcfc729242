#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/page_data/step_choice.h"
#include "profiler/report/timeline/report_input.h"

namespace ferry {

inline constexpr std::size_t kTimelineBytes = 1'150'000;         // of all steps together, as they stand in the page
inline constexpr std::size_t kWantedTimelineBytes = 24'000'000;  // the same, where somebody asks for steps

/// What the page draws single steps from:
///   {"num_steps": of the capture,
///    "zones": [[name, kind, part, name of a, name of b]], "path_kinds": [name],
///    "lanes": [[rank, "thread|device|transfer", name]],
///    "steps": [{"step": number, "group":…, "why":…, "begin_ns", "length_ns", "tokens", "sequences", "slices": how many,
///               "data": StepColumns' bytes, through zlib, in base64}], by begin,
///    "finding_steps": [number of the step that shows the finding best, or null]}
/// As many steps as fit into `max_bytes`, chosen by rank_steps(); if those are all, `why` is empty.
nlohmann::ordered_json make_step_timelines(const ReportInput& input, const std::vector<Finding>& findings, StepRange wanted,
                                           std::size_t max_bytes);

}  // namespace ferry
