#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/trace/trace_session.h"

// What clients write when they ask for a capture. Errors are Error{kInvalidArgument} that names the field, its value and what
// is allowed.

namespace ferry {

struct StartProfile {
  TracePlan plan;          // not yet checked
  std::string output_dir;  // empty: a new one
};

struct StopProfile {
  bool wait = false;  // until the files are written
};

/// Bodies of POST /start_profile and /stop_profile: a JSON object, or nothing, which is {}.
StartProfile parse_start_profile(std::string_view body);
StopProfile parse_stop_profile(std::string_view body);

/// 0, 1 or 2 as a level to record at.
TraceLevel parse_trace_level(int64_t level);

/// Throws for steps or bytes out of range.
void check_plan(const TracePlan& plan);

}  // namespace ferry
