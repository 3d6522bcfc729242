#pragma once

#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/findings/worker_findings.h"
#include "profiler/report/lost_time/lost_time.h"

namespace ferry {

/// Ranks that steps lost time to, each with the class of its cause and the milliseconds that would be saved: "stopped",
/// "no_core", "slow_link", "uneven_rows" or (if a hot expert is behind them) "hot_expert", "slow_rank".
/// What `counted` has told of a worker is not told again.
std::vector<Finding> find_costly_ranks(const ReportInput& input, const LostTime& lost,
                                       const std::vector<CountedDoubt>& counted = {});

/// Behind what is told of a rank that did not run.
inline constexpr const char* kWhyStopped = "it was stopped by a signal or a debugger, or its container or machine was paused";

}  // namespace ferry
