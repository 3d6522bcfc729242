#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "profiler/capture.h"

namespace ferry {

/// When the latest steps of one coordinator began on this rank. Used by one thread; allocates nothing.
class StepMarks {
 public:
  static constexpr std::size_t kMost = 64;

  /// Something of `step` begins, or began to be waited for, at `ticks`. Only the first such moment of a step counts.
  void note(int64_t step, uint64_t ticks);

  /// When `step` began, or the first of the marked ones behind it; UINT64_MAX if there is none.
  uint64_t begin_of(int64_t step) const;

 private:
  struct Mark {
    int64_t step = -1;
    uint64_t ticks = 0;
  };

  std::array<Mark, kMost> marks_{};
  std::size_t next_ = 0;  // in marks_, to be overwritten
};

/// Leaves of a rank's records those of steps from `first` on and, from the first moment of these on, what is of no step.
void keep_steps_from(int64_t first, RankCapture& capture);

}  // namespace ferry
