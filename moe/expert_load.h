#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry {

/// Counts the rows every logical expert was given, per layer, since start, and those of every rank that computed some. One
/// writer; readers copy under the owner's lock.
class ExpertLoad {
 public:
  /// `num_ranks` have experts; with one, all rows are its.
  ExpertLoad(int64_t num_layers, int64_t num_experts, int64_t num_ranks = 1)
      : num_layers_(num_layers),
        num_experts_(num_experts),
        tokens_(static_cast<std::size_t>(num_layers * num_experts), 0),
        rank_tokens_(static_cast<std::size_t>(num_layers), std::vector<int64_t>(static_cast<std::size_t>(num_ranks), 0)) {}

  /// Adds topk_idx [num_tokens, top_k] of one layer's step.
  void record(int64_t layer, std::span<const int32_t> topk_idx);
  /// Adds rows of one expert.
  void add(int64_t layer, int64_t expert, int64_t rows) {
    tokens_[static_cast<std::size_t>(layer * num_experts_ + expert)] += rows;
  }

  /// Adds rows that the rank_idx-th of several ranks computed; more ranks may have come.
  void add_to_rank(int64_t layer, int32_t rank_idx, int64_t rows);

  /// [num_experts] rows since start.
  std::span<const int64_t> layer(int64_t layer) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(layer * num_experts_), static_cast<std::size_t>(num_experts_));
  }
  int64_t num_layers() const { return num_layers_; }
  int64_t num_experts() const { return num_experts_; }
  /// [num_ranks] rows since start.
  std::vector<int64_t> rank_rows(int64_t layer) const;

 private:
  int64_t num_layers_;
  int64_t num_experts_;
  std::vector<int64_t> tokens_;                    // [num_layers, num_experts]
  std::vector<std::vector<int64_t>> rank_tokens_;  // [num_layers][num_ranks]
};

/// Mean over ranks / max over ranks of the rows, averaged over the layers that saw any: 1 is perfect balance, 1 / ranks the
/// worst.
double balancedness(const ExpertLoad& load);

}  // namespace ferry
