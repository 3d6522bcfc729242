#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/timeline/intervals.h"

namespace ferry {

/// Steps whose time a finding tells as what a worker cost that was then doubted or lost.
struct CountedDoubt {
  int32_t rank = 0;
  Interval when;
  std::size_t first_step = 0, last_step = 0;  // [first, last) of timeline.steps
};

struct WorkerChanges {
  std::vector<Finding> findings;
  std::vector<CountedDoubt> counted;
};

/// One finding for each incident, named for the worst in it: "worker_lost", "worker_late", "worker_left", "worker_joined" or
/// "experts_moved", and what it cost, or that this cannot be told.
WorkerChanges find_worker_changes(const ReportInput& input);

}  // namespace ferry
