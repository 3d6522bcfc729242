#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/placement/placement_types.h"

// Places the experts of one layer by the time they are expected to take, over workers of any number, room and speed:
//
//   copies   one each; every further slot to the largest cost / copies, as long as a worker is left that has none
//   deal     by falling cost / copies, each to the worker that has done with it first; never two copies on one worker
//
// Dealing the longest first is R. L. Graham's rule (SIAM J. Appl. Math. 17, 1969): at most 4/3 of the best with equal speeds
// and room to spare. Where rooms differ, a copy goes only where the rest still fits, by the theorem of Gale and Ryser (1957):
// so every placement that is possible at all is found.

namespace ferry {

/// Copies beyond the first.
struct Redundancy {
  enum class Kind : uint8_t {
    kExtraSlots,  // `extra_slots` more copies in all, for the experts that take longest
    kTwice,       // exactly two of each, spread so that a worker's experts have their other copies on all others alike
  };
  Kind kind = Kind::kExtraSlots;
  int64_t extra_slots = 0;  // a layer; those that no expert can use, since all workers have it, stay empty
};

/// [num_experts] how many copies each gets. `held` [num_experts] or empty: the copies there are now; keeping one counts as
/// kKeptCopyBonus of its worth, so that near ties do not move experts. Ties: fewer copies, then the lower id. Throws
/// kInvalidArgument if the workers have too little room, and for a cost or speed that makes no sense.
std::vector<int32_t> count_copies(std::span<const double> cost, std::span<const WorkerCapacity> workers,
                                  const Redundancy& redundancy, std::span<const int32_t> held = {});
inline constexpr double kKeptCopyBonus = 0.05;

/// The placement, with each worker's experts in the order of their ids. `cost` [num_experts]: expected time of each expert a
/// step, >= 0 (`expected_cost` of load_windows.h). Ties: the lower expert; the worker with fewer experts, then the lower
/// worker. Throws as count_copies does.
LayerPlacement spread(std::span<const double> cost, std::span<const WorkerCapacity> workers, const Redundancy& redundancy);

/// The expected time of the slowest worker, where each copy of an expert has an equal share of its cost: max over workers of
/// sum(cost / copies) / speed.
double placement_cost(const LayerPlacement& placement, std::span<const double> cost, std::span<const WorkerCapacity> workers);

/// [num_experts] copies of each expert.
std::vector<int32_t> copies_in(const LayerPlacement& placement, int64_t num_experts);

}  // namespace ferry
