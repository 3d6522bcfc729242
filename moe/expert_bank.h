#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/matmul.h"

namespace ferry {

/// Widths that all experts of a model share.
struct ExpertDims {
  int64_t hidden_dim = 0;
  int64_t intermediate_dim = 0;
};

/// One routed expert, packed: gate_up [2 * intermediate_dim, hidden_dim] (gated: gate rows, then up rows) and down [hidden_dim,
/// intermediate_dim].
struct PackedExpert {
  std::unique_ptr<const PackedMatrix> gate_up, down;
};

/// Some experts of one layer, as grouped_matmul takes them.
struct LayerExperts {
  std::span<const PackedMatrix*const> gate_up, down;  // [num_experts]
};

/// The routed experts that live on this rank, of every layer those that one epoch of the placement gives it. Filled while
/// loading (distinct entries from any thread), then read only; banks of several epochs share what they have in common.
class ExpertBank {
 public:
  /// `num_local_experts` [num_layers]; `type` is that of every matrix.
  ExpertBank(std::span<const int64_t> num_local_experts, ExpertDims dims, WeightType type);
  /// As many of every layer.
  ExpertBank(int64_t num_layers, int64_t num_local_experts, ExpertDims dims, WeightType type);

  void set(int64_t layer, int64_t local_expert, std::shared_ptr<const PackedExpert> expert);
  /// What was set, null if nothing was.
  std::shared_ptr<const PackedExpert> expert(int64_t layer, int64_t local_expert) const {
    return experts_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(local_expert)];
  }

  LayerExperts layer(int64_t layer) const { return {gate_up(layer), down(layer)}; }
  std::span<const PackedMatrix* const> gate_up(int64_t layer) const { return gate_up_[static_cast<std::size_t>(layer)]; }
  std::span<const PackedMatrix* const> down(int64_t layer) const { return down_[static_cast<std::size_t>(layer)]; }
  int64_t num_layers() const { return static_cast<int64_t>(gate_up_.size()); }
  int64_t num_local_experts(int64_t layer) const { return static_cast<int64_t>(gate_up(layer).size()); }
  /// The most that a layer has.
  int64_t num_local_experts() const;
  const ExpertDims& dims() const { return dims_; }
  WeightType type() const { return type_; }
  bool is_quantized() const { return type_.is_integer(); }
  /// What a token's row is when it reaches the experts: values of the run's dtype, or codes.
  DType row_dtype(DType run_dtype) const { return is_quantized() ? DType::kI8 : run_dtype; }

 private:
  ExpertDims dims_;
  WeightType type_;
  std::vector<std::vector<std::shared_ptr<const PackedExpert>>> experts_;  // [num_layers][num_local_experts]
  std::vector<std::vector<const PackedMatrix*>> gate_up_;                  // likewise
  std::vector<std::vector<const PackedMatrix*>> down_;                     // likewise
};

}  // namespace ferry
