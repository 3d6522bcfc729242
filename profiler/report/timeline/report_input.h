#pragma once

#include <vector>

#include "profiler/capture.h"
#include "profiler/report/critical_path/path_piece.h"
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
  const std::vector<RankActivity> activity;    // by rank
  const std::vector<PathPiece> critical_path;  // by step, then begin: what steps took their time for (critical_path.h)
};

}  // namespace ferry
