#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "runtime/schedule/scheduler.h"

namespace ferry {

/// A step of sequences that are all alike, to see what it would be computed with.
struct DryStep {
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;  // of each
  int64_t num_past = 0;    // likewise, in the caches
  DeltaForm form = DeltaForm::kChunk;
};

/// Steps of every kind that differ in what a device computes them with: pieces of prompts of 1, 2, 4 ... tokens up to the
/// largest, prompts of as many sequences as there may be, which fill a step together, and decodes of 1, 2, 4 ... sequences up
/// to the most, each with short and with long pasts.
std::vector<DryStep> dry_steps(const SchedulerOptions& options);

}  // namespace ferry
