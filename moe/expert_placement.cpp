#include "moe/expert_placement.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

LayerPlacement lists_of(const ExpertMap& map) {
  LayerPlacement experts(map.ranks().size());
  for (std::size_t r = 0; r < experts.size(); ++r) {
    for (const PhysicalExpertId physical : map.experts_of(static_cast<int32_t>(r)))
      experts[r].push_back(map.logical_of(physical));
  }
  return experts;
}

}  // namespace

ExpertPlacement ExpertPlacement::contiguous(int64_t num_layers, int64_t num_experts, std::span<const Rank> ranks) {
  const ExpertMap map = ExpertMap::contiguous(num_experts, ranks);
  const std::vector<LayerPlacement> layers(static_cast<std::size_t>(std::max<int64_t>(num_layers, 0)), lists_of(map));
  return ExpertPlacement(map.epoch(), ranks, num_experts, layers);
}

ExpertPlacement::ExpertPlacement(uint32_t epoch, std::span<const Rank> ranks, int64_t num_experts,
                                 std::span<const LayerPlacement> layers) {
  if (layers.empty()) throw_invalid("a placement of 0 layers; allowed: 1 or more");
  if (static_cast<int64_t>(ranks.size()) > kMaxWorkers) {
    throw_invalid("a placement on " + std::to_string(ranks.size()) + " ranks; allowed: 1 to " + std::to_string(kMaxWorkers));
  }
  for (std::size_t l = 0; l < layers.size(); ++l) {
    try {
      maps_.emplace_back(epoch, ranks, num_experts, layers[l]);
    } catch (const Error& error) {
      throw Error(error.code(), "layer " + std::to_string(l) + ": " + error.what());
    }
    for (int32_t e = 0; e < num_experts; ++e) {
      uint64_t holders = 0;
      for (const PhysicalExpertId copy : maps_[l].copies_of({e})) holders |= uint64_t{1} << maps_[l].rank_idx_of(copy);
      holders_.push_back(holders);
    }
  }
}

LayerPlacement ExpertPlacement::experts(int64_t layer) const { return lists_of(this->layer(layer)); }

RankExperts ExpertPlacement::experts_of(int32_t rank_idx) const {
  RankExperts experts;
  for (const ExpertMap& map : maps_) {
    std::vector<LogicalExpertId>& layer = experts.emplace_back();
    for (const PhysicalExpertId physical : map.experts_of(rank_idx)) layer.push_back(map.logical_of(physical));
  }
  return experts;
}

int64_t ExpertPlacement::max_local_experts(int32_t rank_idx) const {
  std::size_t most = 0;
  for (const ExpertMap& map : maps_) most = std::max(most, map.experts_of(rank_idx).size());
  return static_cast<int64_t>(most);
}

}  // namespace ferry
