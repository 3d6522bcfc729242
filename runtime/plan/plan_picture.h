#pragma once

#include <span>
#include <string>

#include "runtime/plan/advice.h"
#include "runtime/plan/plan_types.h"

namespace ferry {

/// The configurations as a table for people: a line each, the best of each batch marked with *; then what is advised and what
/// was assumed.
std::string plan_table(std::span<const PlanResult> results, std::span<const PlanAdvice> advice);

/// One JSON object with all of it.
std::string plan_json(const PlanModel& model, std::span<const PlanHost> hosts, std::span<const PlanResult> results,
                      std::span<const PlanAdvice> advice);

/// Tokens/s of decode over workers as an SVG document: a line for each batch, redundancy and number of coordinators; of several
/// coordinators a bar from none merged to all; a ring where decoding stands while a dead worker's experts are read.
std::string plan_svg(std::span<const PlanResult> results);

}  // namespace ferry
