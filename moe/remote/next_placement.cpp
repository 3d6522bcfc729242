#include "moe/remote/next_placement.h"

#include <algorithm>
#include <iterator>

namespace ferry {
namespace {

/// Experts of a layer that a worker is to have.
struct Share {
  int64_t least = 0, most = 0;  // apart by the one that is left over when shares are rounded
};

/// Shares are equal, but for workers that cannot take theirs.
std::vector<Share> equal_shares(std::span<const WorkerRoom> workers, int64_t num_copies) {
  std::vector<Share> shares(workers.size());
  std::vector<std::size_t> open;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].is_there) open.push_back(w);
  }
  int64_t left = num_copies;
  const auto share = [&] { return Share{left / std::ssize(open), (left + std::ssize(open) - 1) / std::ssize(open)}; };
  while (!open.empty()) {
    const auto is_full = [&](std::size_t w) { return workers[w].most_experts && *workers[w].most_experts < share().most; };
    const auto full = std::ranges::find_if(open, is_full);
    if (full == open.end()) break;
    const int64_t most = *workers[*full].most_experts;
    shares[*full] = {most, most};
    left -= most;
    open.erase(full);
  }
  for (const std::size_t w : open) shares[w] = share();
  return shares;
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

/// Where all others can keep what they have, rounding leaves nothing for who has just come: it gets the least that is a share,
/// one by one of those that have most beyond theirs, while loads are left.
void give_to_newcomers(LayerPlacement& layer, std::span<const WorkerRoom> workers, std::span<const Share> shares,
                       int64_t& loads_left) {
  const auto beyond = [&](std::size_t w) { return std::ssize(layer[w]) - shares[w].least; };
  for (std::size_t w = 0; w < workers.size(); ++w) {
    while (workers[w].is_there && !workers[w].holds_current && beyond(w) < 0 && loads_left > 0) {
      const auto can_go = [&](LogicalExpertId expert) { return std::ranges::find(layer[w], expert) == layer[w].end(); };
      std::optional<std::size_t> giver;
      for (std::size_t other = 0; other < workers.size(); ++other) {
        if (beyond(other) > (giver ? beyond(*giver) : 0) && std::ranges::any_of(layer[other], can_go)) giver = other;
      }
      if (!giver) break;
      std::vector<LogicalExpertId>& given = layer[*giver];
      const auto last = std::find_if(given.rbegin(), given.rend(), can_go);  // before it all keep their slots
      layer[w].push_back(*last);
      given.erase(std::next(last).base());
      --loads_left;
    }
  }
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
  const std::vector<Share> shares = equal_shares(workers, wanted);
  int64_t num_slots = 0;
  std::vector<WorkerCapacity> capacities;
  for (const Share& share : shares) {
    num_slots += std::min(share.most, num_experts);
    capacities.push_back({.slots = static_cast<int32_t>(std::min(share.most, num_experts))});
  }
  if (num_slots < num_experts) return std::nullopt;
  if (!is_twice || num_slots < wanted)
    redundancy = {.kind = Redundancy::Kind::kExtraSlots, .extra_slots = std::min(wanted, num_slots) - num_experts};
  std::vector<LayerPlacement> layers;
  for (int64_t layer = 0; layer < current.num_layers(); ++layer) layers.push_back(held_now(current, layer, workers));
  const RebalanceLimits limits{.min_gain = options.min_gain, .expert_bytes = 1, .budget_bytes = options.max_loads};
  int64_t loads_left = options.max_loads;
  for (LayerChange& change : rebalance(cost, layers, capacities, redundancy, limits)) {
    loads_left -= change.num_loads;
    layers[static_cast<std::size_t>(change.layer)] = std::move(change.placement);
  }
  for (LayerPlacement& layer : layers) give_to_newcomers(layer, workers, shares, loads_left);
  std::vector<Rank> ranks;
  for (const WorkerRoom& worker : workers) ranks.push_back(worker.rank);
  return ExpertPlacement(epoch, ranks, num_experts, layers);
}

}  // namespace ferry
