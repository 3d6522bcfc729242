#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "moe/expert_bank.h"
#include "moe/expert_map.h"
#include "moe/permutation.h"
#include "runtime/base/types.h"

namespace ferry {

inline std::vector<Rank> worker_ranks(int count) {
  std::vector<Rank> ranks;
  for (int r = 1; r <= count; ++r) ranks.push_back({r});
  return ranks;
}

inline std::shared_ptr<const PackedExpert> make_expert(std::unique_ptr<PackedMatrix> gate_up,
                                                       std::unique_ptr<PackedMatrix> down) {
  return std::make_shared<const PackedExpert>(PackedExpert{std::move(gate_up), std::move(down)});
}

/// Every expert is computed by its first holder.
inline void plan_by_map(const std::vector<int32_t>& topk_idx, int64_t top_k, const ExpertMap& map, DispatchPlan& plan) {
  std::vector<ExpertOwner> owners;
  for (int32_t e = 0; e < map.num_logical(); ++e) {
    const PhysicalExpertId copy = map.copies_of({e}).front();
    owners.push_back({map.rank_idx_of(copy), map.local_idx_of(copy)});
  }
  std::vector<int32_t> num_local;
  for (int32_t r = 0; r < std::ssize(map.ranks()); ++r) num_local.push_back(static_cast<int32_t>(map.experts_of(r).size()));
  plan_dispatch(topk_idx, top_k, owners, num_local, plan);
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
