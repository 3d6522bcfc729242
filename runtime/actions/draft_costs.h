#pragma once

#include <vector>

#include "runtime/actions/plan_replay.h"

namespace ferry {

/// The capture's hosts for steps that decode always `sequences`, with more or fewer rows each. What one takes whatever its
/// rows, such as reading its keys and its state, looks like its rows' where captured steps have more rows when they have more
/// sequences. It is told apart where rows of a sequence differ from step to step, or by what the layer that guesses takes for
/// one row of each; elsewhere the hosts are as they were.
std::vector<PlanHost> with_rows_of(const CaptureReplay& replay, const StepGroup& group, double sequences);

}  // namespace ferry
