#include "moe/expert_map.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace ferry {

ExpertMap ExpertMap::contiguous(int64_t num_experts, std::span<const Rank> ranks) {
  const auto num_ranks = static_cast<int64_t>(ranks.size());
  if (num_ranks < 1 || num_ranks > std::max<int64_t>(num_experts, 1)) {
    throw_invalid(std::to_string(num_ranks) + " expert workers for " + std::to_string(num_experts) +
                  " experts; allowed: 1 to " + std::to_string(num_experts));
  }
  ExpertMap map;
  map.ranks_.assign(ranks.begin(), ranks.end());
  map.copies_.resize(static_cast<std::size_t>(num_experts));
  map.local_experts_.resize(ranks.size());
  int32_t next = 0;
  for (int64_t r = 0; r < num_ranks; ++r) {
    const int64_t count = num_experts / num_ranks + (r < num_experts % num_ranks ? 1 : 0);
    for (int64_t i = 0; i < count; ++i, ++next) {
      map.logical_.push_back({next});
      map.rank_idx_.push_back(static_cast<int32_t>(r));
      map.local_idx_.push_back(static_cast<int32_t>(i));
      map.copies_[static_cast<std::size_t>(next)].push_back({next});
      map.local_experts_[static_cast<std::size_t>(r)].push_back({next});
    }
  }
  return map;
}

}  // namespace ferry
