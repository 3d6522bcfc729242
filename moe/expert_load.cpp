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

std::vector<int64_t> tokens_per_rank(const ExpertLoad& load, int64_t layer, const ExpertMap& map) {
  std::vector<int64_t> tokens(map.ranks().size(), 0);
  const std::span<const int64_t> counts = load.layer(layer);
  for (int64_t e = 0; e < map.num_logical(); ++e) {
    const PhysicalExpertId expert = map.copies_of({static_cast<int32_t>(e)}).front();
    tokens[static_cast<std::size_t>(map.rank_idx_of(expert))] += counts[static_cast<std::size_t>(e)];
  }
  return tokens;
}

double balancedness(const ExpertLoad& load, const ExpertMap& map) {
  double sum = 0;
  int64_t layers = 0;
  for (int64_t l = 0; l < load.num_layers(); ++l) {
    const std::vector<int64_t> tokens = tokens_per_rank(load, l, map);
    const int64_t most = *std::max_element(tokens.begin(), tokens.end());
    if (most == 0) continue;
    const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    sum += static_cast<double>(all) / static_cast<double>(tokens.size()) / static_cast<double>(most);
    ++layers;
  }
  return layers == 0 ? 1.0 : sum / static_cast<double>(layers);
}

}  // namespace ferry
