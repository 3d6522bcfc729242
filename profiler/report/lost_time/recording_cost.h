#pragma once

#include <cstdint>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// What recording took at most of the thread that it took most of, relative to the time in steps.
struct RecordingCost {
  double share = 0;  // cost of all records / time in steps; 0 without steps
  int32_t rank = 0;
  int64_t records = 0;
  double span_cost_ns = 0;  // of a record on the average
};
RecordingCost find_recording_cost(const ReportInput& input);

}  // namespace ferry
