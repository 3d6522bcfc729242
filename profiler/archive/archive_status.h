#pragma once

#include <cstdint>

#include "profiler/archive/step_drift.h"

namespace ferry {

/// What a server tells of its archive.
struct ArchiveStatus {
  StepDrift drift{};
  int64_t num_kept = 0;   // steps in the archive
  int64_t num_bytes = 0;  // of them
  /// Since the start: steps to be kept that could not be collected or written, or came faster than they could.
  int64_t num_left_out = 0;
};

}  // namespace ferry
