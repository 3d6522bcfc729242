#pragma once

#include <vector>

#include "runtime/actions/plan_replay.h"

namespace ferry {

/// The capture's hosts for steps that decode always `sequences`, with more or fewer rows each. What one takes whatever its
/// rows, such as reading its keys and its state, looks like its rows' where captured steps have more rows when they have more
/// sequences. It is told apart where rows of a sequence differ from step to step, or else by what operators do, and what the
/// layer that guesses takes for one row of each; where the capture has neither, the hosts are as they were.
std::vector<PlanHost> with_rows_of(const CaptureReplay& replay, const StepGroup& group, double sequences);

/// How many experts rows of a step touch, were as many as these all that rows ever ask for, all alike: rows of one text ask for
/// what those before them did. By the group's steps.
class ExpertsOfRows {
 public:
  ExpertsOfRows(const CaptureReplay& replay, const StepGroup& group);
  /// Of what rows touch that are drawn by how often each expert was asked for, each by itself, what share that is.
  double share_of_drawn(double rows) const;

 private:
  double drawn(double rows) const;
  double alike(double rows, double pool) const;

  const CaptureReplay& replay_;
  double top_k_;
  double pool_ = 0;  // experts; 0: not known
};

}  // namespace ferry
