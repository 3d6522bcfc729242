#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/expert_map.h"

namespace ferry {

/// Counts the rows every logical expert was given, per layer, since start. One writer; readers copy under the owner's lock.
class ExpertLoad {
 public:
  ExpertLoad(int64_t num_layers, int64_t num_experts)
      : num_layers_(num_layers), num_experts_(num_experts), tokens_(static_cast<std::size_t>(num_layers * num_experts), 0) {}

  /// Adds topk_idx [num_tokens, top_k] of one layer's step.
  void record(int64_t layer, std::span<const int32_t> topk_idx);
  /// Adds rows of one expert.
  void add(int64_t layer, int64_t expert, int64_t rows) {
    tokens_[static_cast<std::size_t>(layer * num_experts_ + expert)] += rows;
  }

  /// [num_experts] rows since start.
  std::span<const int64_t> layer(int64_t layer) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(layer * num_experts_), static_cast<std::size_t>(num_experts_));
  }
  int64_t num_layers() const { return num_layers_; }

 private:
  int64_t num_layers_;
  int64_t num_experts_;
  std::vector<int64_t> tokens_;  // [num_layers, num_experts]
};

/// Rows of each rank in one layer: [num_ranks].
std::vector<int64_t> tokens_per_rank(const ExpertLoad& load, int64_t layer, const ExpertMap& map);

/// Mean over ranks / max over ranks of the rows, averaged over the layers that saw any: 1 is perfect balance, 1 / ranks the
/// worst.
double balancedness(const ExpertLoad& load, const ExpertMap& map);

}  // namespace ferry
