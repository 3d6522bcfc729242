#include "runtime/placement_choice.h"

#include <algorithm>
#include <string>
#include <vector>

#include "moe/placement/eplb.h"
#include "moe/placement/placement_file.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

using Policy = PlacementOptions::Policy;

constexpr ExpertCost kExpertCost{.fixed = 16, .per_row = 1};  // in rows, as the dispatcher has it

/// Every worker holds as many slots, which all copies fit.
int64_t slots_per_worker(int64_t num_experts, const Redundancy& redundancy, int64_t num_workers) {
  const bool is_twice = redundancy.kind == Redundancy::Kind::kTwice;
  const int64_t most = num_experts * num_workers;
  const int64_t copies = std::min(most, is_twice ? 2 * num_experts : num_experts + redundancy.extra_slots);
  return (copies + num_workers - 1) / num_workers;
}

LayerPlacement spread_layer(std::span<const double> cost, const Redundancy& redundancy, int64_t num_workers) {
  const int64_t slots = slots_per_worker(std::ssize(cost), redundancy, num_workers);
  const std::vector<WorkerCapacity> workers(static_cast<std::size_t>(num_workers),
                                            WorkerCapacity{.slots = static_cast<int32_t>(slots)});
  return spread(cost, workers, redundancy);
}

LayerPlacement eplb_layer(std::span<const double> rows, const Redundancy& redundancy, int64_t num_workers) {
  const auto num_experts = std::ssize(rows);
  const int64_t extra = redundancy.kind == Redundancy::Kind::kTwice ? num_experts : redundancy.extra_slots;
  const std::vector<float> loads(rows.begin(), rows.end());
  return eplb_placement(eplb(loads, {.num_slots = eplb_num_slots(num_experts, extra, num_workers), .num_ranks = num_workers}),
                        num_workers);
}

Policy resolve(const PlacementOptions& options, bool has_loads) {
  if (options.policy != Policy::kAuto) return options.policy;
  return options.redundancy.is_none() && !has_loads ? Policy::kContiguous : Policy::kSpread;
}

}  // namespace

ExpertPlacement choose_placement(const PlacementOptions& options, const ModelConfig& config, std::span<const Rank> workers,
                                 const std::optional<ExpertLoads>& loads) {
  const int64_t num_layers = std::max<int64_t>(config.num_expert_layers(), 1), num_experts = config.moe.num_experts;
  const auto num_workers = static_cast<int64_t>(workers.size());
  const Policy policy = resolve(options, loads.has_value());
  if (policy == Policy::kContiguous) {
    if (!options.redundancy.is_none())
      throw_invalid("--placement contiguous has one copy of each expert; allowed with --redundancy: eplb, spread");
    return ExpertPlacement::contiguous(num_layers, num_experts, workers);
  }
  if (policy == Policy::kFile) {
    if (!options.redundancy.is_none())
      throw_invalid("--placement " + options.file.string() + " says how many copies there are; allowed: no --redundancy");
    return ExpertPlacement(1, workers, num_experts, read_placement_file(options.file, num_layers, num_experts, num_workers));
  }
  const Redundancy redundancy = options.redundancy.of(num_experts);
  if (redundancy.kind == Redundancy::Kind::kTwice && num_workers < 2)
    throw_invalid("--redundancy 2x on " + std::to_string(num_workers) + " worker; allowed: on 2 or more");
  std::vector<LayerPlacement> layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<double> weight(static_cast<std::size_t>(num_experts), 1.0);
    if (policy == Policy::kSpread) {
      if (loads) weight = expected_cost(*loads, layer, kExpertCost);
      layers.push_back(spread_layer(weight, redundancy, num_workers));
    } else {
      if (loads) std::copy_n(loads->rows.begin() + layer * num_experts, num_experts, weight.begin());
      layers.push_back(eplb_layer(weight, redundancy, num_workers));
    }
  }
  return ExpertPlacement(1, workers, num_experts, layers);
}

Redundancy redundancy_of(const ExpertPlacement& first, const PlacementOptions& options) {
  if (!options.redundancy.is_none()) return options.redundancy.of(first.num_experts());
  int64_t most = first.num_experts();
  for (int64_t layer = 0; layer < first.num_layers(); ++layer) most = std::max(most, first.layer(layer).num_physical());
  return {.kind = Redundancy::Kind::kExtraSlots, .extra_slots = most - first.num_experts()};
}

}  // namespace ferry
