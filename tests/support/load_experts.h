#pragma once

#include "moe/expert_map.h"
#include "runtime/model/expert_loader.h"

namespace ferry {

/// The experts that `map` gives one rank, the same of every layer.
inline ExpertBank load_experts(const Checkpoint& checkpoint, const ModelConfig& config, const ExpertMap& map, int32_t rank_idx,
                               Matmul& matmul, ThreadPool& pool, const LoadOptions& options) {
  std::vector<LogicalExpertId> experts;
  for (const PhysicalExpertId physical : map.experts_of(rank_idx)) experts.push_back(map.logical_of(physical));
  const RankExperts layers(static_cast<std::size_t>(config.num_expert_layers()), experts);
  return ExpertLoader(checkpoint, config, matmul, options).load_all(layers, pool);
}

}  // namespace ferry
