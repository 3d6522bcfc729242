#include "moe/expert_map.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

std::string list_ranks(std::span<const Rank> ranks) {
  std::string list;
  for (const Rank rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank.value);
  return list;
}

void check_ranks(uint32_t epoch, std::span<const Rank> ranks, const LayerPlacement& experts) {
  if (epoch < 1) throw_invalid("an expert map of epoch 0; allowed: 1 or more");
  if (experts.size() != ranks.size()) {
    throw_invalid("experts of " + std::to_string(experts.size()) + " ranks for ranks " + list_ranks(ranks) +
                  "; allowed: a list for each");
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (std::find(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(r), ranks[r]) !=
        ranks.begin() + static_cast<std::ptrdiff_t>(r)) {
      throw_invalid("rank " + std::to_string(ranks[r].value) + " twice in an expert map; allowed: once");
    }
  }
}

}  // namespace

ExpertMap ExpertMap::contiguous(int64_t num_experts, std::span<const Rank> ranks) {
  const auto num_ranks = static_cast<int64_t>(ranks.size());
  if (num_ranks < 1 || num_ranks > std::max<int64_t>(num_experts, 1)) {
    throw_invalid(std::to_string(num_ranks) + " expert workers for " + std::to_string(num_experts) +
                  " experts; allowed: 1 to " + std::to_string(num_experts));
  }
  LayerPlacement experts(ranks.size());
  int32_t next = 0;
  for (int64_t r = 0; r < num_ranks; ++r) {
    const int64_t count = num_experts / num_ranks + (r < num_experts % num_ranks ? 1 : 0);
    for (int64_t i = 0; i < count; ++i, ++next) experts[static_cast<std::size_t>(r)].push_back({next});
  }
  return ExpertMap(1, ranks, num_experts, experts);
}

ExpertMap::ExpertMap(uint32_t epoch, std::span<const Rank> ranks, int64_t num_logical, const LayerPlacement& experts)
    : epoch_(epoch),
      ranks_(ranks.begin(), ranks.end()),
      copies_(static_cast<std::size_t>(num_logical)),
      local_experts_(ranks.size()) {
  check_ranks(epoch, ranks, experts);
  for (std::size_t r = 0; r < experts.size(); ++r) {
    for (const LogicalExpertId expert : experts[r]) {
      const auto named = [&] {
        return "expert " + std::to_string(expert.value) + " on rank " + std::to_string(ranks[r].value);
      };
      if (expert.value < 0 || expert.value >= num_logical) {
        throw_invalid(named() + "; allowed: 0 to " + std::to_string(num_logical - 1));
      }
      std::vector<PhysicalExpertId>& copies = copies_[static_cast<std::size_t>(expert.value)];
      if (!copies.empty() && rank_idx_of(copies.back()) == static_cast<int32_t>(r)) {
        throw_invalid(named() + " twice; allowed: copies on different ranks");
      }
      const PhysicalExpertId physical{static_cast<int32_t>(logical_.size())};
      logical_.push_back(expert);
      rank_idx_.push_back(static_cast<int32_t>(r));
      local_idx_.push_back(static_cast<int32_t>(local_experts_[r].size()));
      copies.push_back(physical);
      local_experts_[r].push_back(physical);
    }
  }
  for (std::size_t e = 0; e < copies_.size(); ++e) {
    if (copies_[e].empty()) {
      throw_invalid("expert " + std::to_string(e) + " on none of the ranks " + list_ranks(ranks) + "; allowed: on one or more");
    }
  }
}

}  // namespace ferry
