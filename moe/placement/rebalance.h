#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/placement/placement_types.h"
#include "moe/placement/spread.h"

// From the placement there is to a better one with few moves. A move is a load: a worker reads an expert that it did not hold.
// Bounded moves, hysteresis and layers by gain are after vllm-ascend's swift balancer (vllm_ascend/eplb/core/policy,
// policy_swift_balancer.py at 182b75ea); that copies are kept, capacities differ and workers are lost is not.

namespace ferry {

struct RebalanceLimits {
  double min_gain = 0.05;    // share of its time that a layer must win to be worth moving
  int64_t expert_bytes = 0;  // that one load reads
  int64_t budget_bytes = 0;  // of all loads of one call; experts without a live copy are loaded in any case
};

/// What happens to one layer.
struct LayerChange {
  int64_t layer = 0;
  LayerPlacement
      placement;           // an expert that stays on its worker keeps its slot, as long as the worker has as many slots in use
  double cost_before = 0;  // placement_cost; of an expert without a live copy nothing counts
  double cost_after = 0;
  int64_t num_loads = 0;
  bool is_forced = false;  // done whatever it wins: the old placement lacked copies or used slots that are not there
};

/// One layer's placement near `current` (as many workers as `workers`; what lies on workers without slots is lost): the copies
/// that count_copies wants, with a bonus for those there are; missing ones to the worker that has done first; then moves and
/// exchanges off the fullest worker while each wins more than 1 % of the mean. Loads at most `max_loads`, and every expert that
/// has no live copy. Throws kInvalidArgument as spread does, and if `current` does not fit the workers or the experts.
LayerPlacement spread_near(std::span<const double> cost, std::span<const WorkerCapacity> workers, const Redundancy& redundancy,
                           const LayerPlacement& current, int64_t max_loads);

/// The changes to make, in this order: forced ones first, by layer; then by falling gain, as long as the budget lasts, each at
/// least min_gain of its layer's time. `cost` [num_layers][num_experts], `current` [num_layers].
std::vector<LayerChange> rebalance(std::span<const std::vector<double>> cost, std::span<const LayerPlacement> current,
                                   std::span<const WorkerCapacity> workers, const Redundancy& redundancy,
                                   const RebalanceLimits& limits);

/// How many experts lie in `to` on workers that do not hold them in `from`.
int64_t count_loads(const LayerPlacement& from, const LayerPlacement& to);

}  // namespace ferry
