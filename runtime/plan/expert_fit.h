#pragma once

#include <span>

#include "runtime/plan/plan_types.h"

namespace ferry {

/// A layer's experts at work: so many of them with as many rows each.
struct ExpertPoint {
  double experts = 0;
  double rows = 0;  // of each
  double seconds = 0;
};

/// Sets expert_call and expert such that call + experts * expert(rows) gives the points' seconds back: the call from those with
/// the fewest rows, of which the fewest and the most experts count, the curve from the point with the most experts at each
/// number of rows. `points` is not empty.
void fit_experts(std::span<const ExpertPoint> points, RankCosts& costs);

}  // namespace ferry
