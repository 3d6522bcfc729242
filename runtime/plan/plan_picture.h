#pragma once

#include <span>
#include <string>

#include "runtime/plan/plan_types.h"

namespace ferry {

/// The configurations as a table for people: a line each, the best of each batch marked with *.
std::string plan_table(std::span<const PlanResult> results);

/// One JSON object with all of it.
std::string plan_json(const PlanModel& model, std::span<const PlanHost> hosts, std::span<const PlanResult> results);

/// Tokens/s of decode over workers as an SVG document: a line for each batch, redundancy and number of coordinators.
std::string plan_svg(std::span<const PlanResult> results);

}  // namespace ferry
