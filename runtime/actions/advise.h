#pragma once

#include <vector>

#include "profiler/report/findings/findings.h"

namespace ferry {

/// What find_problems() finds, each with what to do about it, and what could be gained where nothing is wrong. Every action is
/// predicted by replaying the capture with one thing changed (README.md of this folder); those that save less than two per
/// cent, or less than the prediction may be off, are not told. Pure; takes about as long as a report.
std::vector<Finding> find_and_advise(const ReportInput& input);

}  // namespace ferry
