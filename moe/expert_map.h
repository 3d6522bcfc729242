#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/placement/placement_types.h"
#include "runtime/base/types.h"

namespace ferry {

/// Where every expert of a layer lives: logical expert -> its physical copies -> the rank that holds each. An immutable value;
/// a change of placement is a new map with a higher epoch, and messages carry the epoch so that both ends agree on one.
class ExpertMap {
 public:
  /// Every expert once, in id order, in consecutive slices over `ranks`; the first num_experts % ranks.size() slices are one
  /// longer. Its epoch is 1.
  static ExpertMap contiguous(int64_t num_experts, std::span<const Rank> ranks);

  /// ranks[i] holds experts[i], in that order; it may hold none. Physical experts are numbered rank by rank. Throws
  /// kInvalidArgument unless every expert from 0 to num_logical - 1 has a copy and no two copies of one are on the same rank,
  /// all ranks differ, and the epoch is 1 or more.
  ExpertMap(uint32_t epoch, std::span<const Rank> ranks, int64_t num_logical, const LayerPlacement& experts);

  /// Of a job's first map 1.
  uint32_t epoch() const { return epoch_; }
  int64_t num_logical() const { return static_cast<int64_t>(copies_.size()); }
  int64_t num_physical() const { return static_cast<int64_t>(logical_.size()); }
  std::span<const Rank> ranks() const { return ranks_; }

  LogicalExpertId logical_of(PhysicalExpertId expert) const { return logical_[static_cast<std::size_t>(expert.value)]; }
  /// The copies of a logical expert, at least one, in the order of the ranks that hold them.
  std::span<const PhysicalExpertId> copies_of(LogicalExpertId expert) const {
    return copies_[static_cast<std::size_t>(expert.value)];
  }
  /// Index into ranks() of the owner.
  int32_t rank_idx_of(PhysicalExpertId expert) const { return rank_idx_[static_cast<std::size_t>(expert.value)]; }
  /// Position of a physical expert among those of its rank.
  int32_t local_idx_of(PhysicalExpertId expert) const { return local_idx_[static_cast<std::size_t>(expert.value)]; }
  /// The physical experts of ranks()[rank_idx], in local order.
  std::span<const PhysicalExpertId> experts_of(int32_t rank_idx) const {
    return local_experts_[static_cast<std::size_t>(rank_idx)];
  }

 private:
  uint32_t epoch_;
  std::vector<Rank> ranks_;
  std::vector<LogicalExpertId> logical_;                      // [num_physical]
  std::vector<int32_t> rank_idx_;                             // [num_physical]
  std::vector<int32_t> local_idx_;                            // [num_physical]
  std::vector<std::vector<PhysicalExpertId>> copies_;         // [num_logical]
  std::vector<std::vector<PhysicalExpertId>> local_experts_;  // [num_ranks]
};

}  // namespace ferry
