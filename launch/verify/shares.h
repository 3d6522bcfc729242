#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// What the time of steps went to, in us for each token that they were of use for (StepInfo::num_useful()).
struct TimeShare {
  std::string what;  // "MatMul.lm_head", "wait.combine for rank 2", "experts of rank 2"
  double before_us = 0, after_us = 0;

  double saved_us() const { return before_us - after_us; }
};

/// How the same work's time differs between two captures, over some steps of each.
struct TimeDifference {
  double before_us = 0, after_us = 0;  // the steps' own
  std::vector<TimeShare> coordinator;  // operators and waits on its step lane: their savings add up to that of the steps
  std::vector<TimeShare> workers;      // beside it: what each rank's experts took. Both by falling saving

  double saved_us() const { return before_us - after_us; }
};

/// Indices into timeline.steps of each; steps without a useful token on either side: nothing.
TimeDifference compare_shares(const ReportInput& before, const std::vector<std::size_t>& before_steps, const ReportInput& after,
                              const std::vector<std::size_t>& after_steps);

}  // namespace ferry
