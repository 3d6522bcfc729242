#pragma once

#include <vector>

#include "profiler/capture.h"
#include "profiler/report/timeline/breakdown.h"
#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// What every view is computed from. Made once; views only read it.
struct ReportInput {
  explicit ReportInput(Capture recorded);
  ReportInput(const ReportInput&) = delete;
  ReportInput& operator=(const ReportInput&) = delete;

  const Capture capture;
  const Timeline timeline;
  const std::vector<RankActivity> activity;  // by rank
};

}  // namespace ferry
