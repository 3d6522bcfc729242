#pragma once

#include "profiler/archive/kept_step.h"

namespace ferry {

/// Who wants to know of every step, and gets those that are kept. Called by the thread that steps: must be quick.
class StepSink {
 public:
  virtual ~StepSink() = default;

  /// Once a step. Allocates nothing.
  virtual void add_step(const StepFacts& facts) = 0;
  virtual void add_kept_step(KeptStep kept) = 0;
  /// Steps that were to be kept and could not be collected.
  virtual void add_left_out(const CountsByReason& counts) = 0;
};

}  // namespace ferry
