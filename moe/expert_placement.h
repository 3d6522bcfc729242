#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/expert_map.h"

namespace ferry {

/// What a rank holds of each layer with experts, in the order of its slots: [num_layers].
using RankExperts = std::vector<std::vector<LogicalExpertId>>;

/// Where the experts of every layer live: one map a layer, since placements differ by layer; ranks and epoch are the job's. An
/// immutable value, like its maps.
class ExpertPlacement {
 public:
  /// Every layer in consecutive slices: the first placement of a job. Throws as ExpertMap::contiguous does, and as below.
  static ExpertPlacement contiguous(int64_t num_layers, int64_t num_experts, std::span<const Rank> ranks);

  /// `layers`: what each of `ranks` holds of each layer with experts. Throws kInvalidArgument, with the layer, for what
  /// ExpertMap refuses, and for no layers or more than kMaxWorkers ranks.
  ExpertPlacement(uint32_t epoch, std::span<const Rank> ranks, int64_t num_experts, std::span<const LayerPlacement> layers);

  uint32_t epoch() const { return maps_.front().epoch(); }
  std::span<const Rank> ranks() const { return maps_.front().ranks(); }
  int64_t num_layers() const { return static_cast<int64_t>(maps_.size()); }
  int64_t num_experts() const { return maps_.front().num_logical(); }

  const ExpertMap& layer(int64_t layer) const { return maps_[static_cast<std::size_t>(layer)]; }
  /// [num_experts] of a layer: bit r for a copy on ranks()[r], as ExpertChooser takes it.
  std::span<const uint64_t> holders(int64_t layer) const {
    return std::span(holders_).subspan(static_cast<std::size_t>(layer * num_experts()),
                                       static_cast<std::size_t>(num_experts()));
  }
  /// The lists a layer was made of: what `rebalance` takes.
  LayerPlacement experts(int64_t layer) const;
  RankExperts experts_of(int32_t rank_idx) const;
  /// The most experts that a rank holds of any layer.
  int64_t max_local_experts(int32_t rank_idx) const;

 private:
  std::vector<ExpertMap> maps_;    // [num_layers]
  std::vector<uint64_t> holders_;  // [num_layers, num_experts]
};

}  // namespace ferry
