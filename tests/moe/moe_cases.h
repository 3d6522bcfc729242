#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

inline std::vector<Rank> worker_ranks(int count) {
  std::vector<Rank> ranks;
  for (int r = 1; r <= count; ++r) ranks.push_back({r});
  return ranks;
}

enum class Skew { kUniform, kAllToFirst };

/// topk_idx [num_tokens, top_k], distinct experts per token; kAllToFirst takes the first top_k experts for every token.
inline std::vector<int32_t> random_topk(int64_t num_tokens, int64_t num_experts, int64_t top_k, Skew skew, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> experts(static_cast<std::size_t>(num_experts)), topk;
  std::iota(experts.begin(), experts.end(), 0);
  for (int64_t t = 0; t < num_tokens; ++t) {
    if (skew == Skew::kUniform) std::shuffle(experts.begin(), experts.end(), random);
    topk.insert(topk.end(), experts.begin(), experts.begin() + top_k);
  }
  return topk;
}

}  // namespace ferry
