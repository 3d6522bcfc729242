#include "moe/remote/next_placement.h"

#include <algorithm>

namespace ferry {
namespace {

/// Slots a layer: shares are equal, but for workers that cannot take theirs.
std::vector<int64_t> share_slots(std::span<const WorkerRoom> workers, int64_t num_copies) {
  std::vector<int64_t> slots(workers.size(), 0);
  std::vector<std::size_t> open;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].is_there) open.push_back(w);
  }
  int64_t left = num_copies;
  const auto share = [&] { return (left + std::ssize(open) - 1) / std::ssize(open); };
  while (!open.empty()) {
    const auto is_full = [&](std::size_t w) { return workers[w].most_experts && *workers[w].most_experts < share(); };
    const auto full = std::ranges::find_if(open, is_full);
    if (full == open.end()) break;
    slots[*full] = *workers[*full].most_experts;
    left -= slots[*full];
    open.erase(full);
  }
  if (!open.empty()) {
    for (const std::size_t w : open) slots[w] = share();
  }
  return slots;
}

/// What is left of a layer's lists.
LayerPlacement held_now(const ExpertPlacement& current, int64_t layer, std::span<const WorkerRoom> workers) {
  LayerPlacement held = current.experts(layer);
  held.resize(workers.size());
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (!workers[w].holds_current) held[w].clear();
  }
  return held;
}

}  // namespace

std::optional<ExpertPlacement> next_placement(uint32_t epoch, const ExpertPlacement& current,
                                              std::span<const WorkerRoom> workers, std::span<const std::vector<double>> cost,
                                              const NextPlacementOptions& options) {
  const int64_t num_experts = current.num_experts();
  const auto num_there = std::ranges::count_if(workers, [](const WorkerRoom& worker) { return worker.is_there; });
  if (num_there == 0) return std::nullopt;
  Redundancy redundancy = options.redundancy;
  const bool is_twice = redundancy.kind == Redundancy::Kind::kTwice && num_there > 1;
  const int64_t wanted = is_twice ? 2 * num_experts : std::min(num_experts * num_there, num_experts + redundancy.extra_slots);
  const std::vector<int64_t> slots = share_slots(workers, wanted);
  int64_t num_slots = 0;
  std::vector<WorkerCapacity> capacities;
  for (const int64_t count : slots) {
    num_slots += std::min(count, num_experts);
    capacities.push_back({.slots = static_cast<int32_t>(std::min(count, num_experts))});
  }
  if (num_slots < num_experts) return std::nullopt;
  if (!is_twice || num_slots < wanted)
    redundancy = {.kind = Redundancy::Kind::kExtraSlots, .extra_slots = std::min(wanted, num_slots) - num_experts};
  std::vector<LayerPlacement> layers;
  for (int64_t layer = 0; layer < current.num_layers(); ++layer) layers.push_back(held_now(current, layer, workers));
  const RebalanceLimits limits{.min_gain = options.min_gain, .expert_bytes = 1, .budget_bytes = options.max_loads};
  for (LayerChange& change : rebalance(cost, layers, capacities, redundancy, limits))
    layers[static_cast<std::size_t>(change.layer)] = std::move(change.placement);
  std::vector<Rank> ranks;
  for (const WorkerRoom& worker : workers) ranks.push_back(worker.rank);
  return ExpertPlacement(epoch, ranks, num_experts, layers);
}

}  // namespace ferry
