#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "moe/expert_placement.h"
#include "moe/placement/rebalance.h"

namespace ferry {

/// A worker as the next placement sees it, by its index.
struct WorkerRoom {
  Rank rank;
  bool is_there = false;                // after the change
  bool holds_current = false;           // what the current placement gives this worker
  std::optional<int64_t> most_experts;  // of a layer, if it cannot take as many as its share
};

struct NextPlacementOptions {
  Redundancy redundancy;   // of the first placement; less where workers or room do not do
  int64_t max_loads = 0;   // of experts that are not missing
  double min_gain = 0.05;  // as of RebalanceLimits
};

/// The placement after workers came, left or were lost, near the current one: every expert has a holder that is there, shares
/// are equal, copies are as many as before where there are workers for them. `workers` begin with those of `current`.
/// `cost` [num_layers][num_experts] as of rebalance(). Nothing if nobody is there, or those that are have no room.
std::optional<ExpertPlacement> next_placement(uint32_t epoch, const ExpertPlacement& current,
                                              std::span<const WorkerRoom> workers, std::span<const std::vector<double>> cost,
                                              const NextPlacementOptions& options);

}  // namespace ferry
