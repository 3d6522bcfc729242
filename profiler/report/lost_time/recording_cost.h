#pragma once

#include <cstdint>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// What recording took of the thread that recorded most, relative to the time in steps.
struct RecordingCost {
  double share = 0;  // records x cost of one / time in steps; 0 without steps
  int32_t rank = 0;
  int64_t records = 0;
  double span_cost_ns = 0;
};
RecordingCost find_recording_cost(const ReportInput& input);

}  // namespace ferry
