#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// CPU time that was found in one stack of a rank.
struct StackTime {
  int32_t rank = 0;    // its number
  std::size_t at = 0;  // its place in Capture::ranks, whose stacks these are
  int32_t phase = -1;  // index into kPhases of the step that the time lies in; -1: in none
  uint32_t stack = 0;  // of its StackCapture::stacks
  int64_t ns = 0;
  int64_t samples = 0;
};

/// By rank, phase and stack.
std::vector<StackTime> find_stack_times(const ReportInput& input);

/// "decode"; "outside" where the time lies in no step.
const char* stack_phase_name(int32_t phase);

/// Whether a rank's stacks were sampled, or could not be.
bool has_stacks(const ReportInput& input);

/// What ranks say of samples that they lack: "rank 1: somebody else handles SIGPROF; rank 2: 7 samples lost". Empty: nothing.
std::string missing_stacks(const ReportInput& input);

}  // namespace ferry
