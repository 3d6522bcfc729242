#pragma once

#include <string>

#include "profiler/capture.h"

namespace ferry {

/// Refuses numbers that no run has: counts below zero, rates that are none, times beyond all. They would not break a report,
/// but it would tell them. Throws Error{kInvalidArgument} that names `source`, the section, the number and its value.
void check_rank_numbers(const RankCapture& rank, const std::string& source);
void check_info_numbers(const CaptureInfo& info, const std::string& source);
/// The moments of a run's changes are of its coordinator's clock.
void check_worker_changes(const CaptureInfo& info, const RankCapture& coordinator, const std::string& source);

}  // namespace ferry
