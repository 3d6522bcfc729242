#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/types.h"

// Faults that a run is to have, to see what becomes of them: as text, a comma between two,
//
//   kill:RANK@WHEN              the rank is killed (SIGKILL)
//   stop:RANK@WHEN+SECONDSs     it is stopped (SIGSTOP), and goes on after so long
//   cut:0-RANK@WHEN             the link between the coordinator and it breaks
//   slow:RANKxFACTOR[@WHEN]     it takes so many times as long for experts' rows, from then on
//   slow:RANK+SECONDSs[@WHEN]   it takes so much longer for them, each time, whatever else the machine does
//   nan:RANK[@WHEN]             each of its replies holds a value that is no number, from then on
//
// where WHEN is step=N, the coordinator's step as captures count it, or 3.5s after the rank has begun to work.

namespace ferry {

struct PlannedFault {
  enum class Kind : uint8_t { kKill, kStop, kCut, kSlow, kDelay, kNan };
  Kind kind = Kind::kKill;
  Rank rank{0};                                   // whom it happens to; of a cut the worker
  std::optional<int64_t> step;                    // when: before this step
  std::optional<std::chrono::microseconds> time;  // or so long after the start; neither: from the start on
  std::chrono::microseconds duration{0};          // of a stop, or of a delay
  double factor = 1;                              // of a slow rank
};

/// Throws Error{kInvalidArgument} that names the piece and what is allowed.
std::vector<PlannedFault> parse_fault_plan(const std::string& text);

}  // namespace ferry
