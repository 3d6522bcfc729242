#include "moe/expert_load.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.h"

namespace ferry {

void ExpertLoad::record(int64_t layer, std::span<const int32_t> topk_idx) {
  FERRY_CHECK_LT(layer, num_layers());
  int64_t* counts = tokens_.data() + layer * num_experts_;
  for (const int32_t expert : topk_idx) ++counts[expert];
}

void ExpertLoad::add_to_rank(int64_t layer, int32_t rank_idx, int64_t rows) {
  std::vector<int64_t>& ranks = rank_tokens_[static_cast<std::size_t>(layer)];
  if (static_cast<std::size_t>(rank_idx) >= ranks.size()) ranks.resize(static_cast<std::size_t>(rank_idx) + 1, 0);
  ranks[static_cast<std::size_t>(rank_idx)] += rows;
}

std::vector<int64_t> ExpertLoad::rank_rows(int64_t layer) const {
  const std::vector<int64_t>& ranks = rank_tokens_[static_cast<std::size_t>(layer)];
  if (ranks.size() > 1) return ranks;
  const std::span<const int64_t> experts = this->layer(layer);
  return {std::accumulate(experts.begin(), experts.end(), int64_t{0})};
}

double balancedness(const ExpertLoad& load) {
  double sum = 0;
  int64_t layers = 0;
  for (int64_t l = 0; l < load.num_layers(); ++l) {
    const std::vector<int64_t> tokens = load.rank_rows(l);
    const int64_t most = *std::max_element(tokens.begin(), tokens.end());
    if (most == 0) continue;
    const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    sum += static_cast<double>(all) / static_cast<double>(tokens.size()) / static_cast<double>(most);
    ++layers;
  }
  return layers == 0 ? 1.0 : sum / static_cast<double>(layers);
}

}  // namespace ferry
