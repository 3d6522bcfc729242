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

/// The routed experts that live on this rank: for every layer and local expert gate_up [2 * intermediate_dim, hidden_dim]
/// (gated: gate rows, then up rows) and down [hidden_dim, intermediate_dim], packed. Filled while loading (distinct entries
/// from any thread), then read only.
class ExpertBank {
 public:
  /// `type` is that of every matrix.
  ExpertBank(int64_t num_layers, int64_t num_local_experts, ExpertDims dims, WeightType type);

  void set(int64_t layer, int64_t local_expert, std::unique_ptr<PackedMatrix> gate_up, std::unique_ptr<PackedMatrix> down);

  std::span<const PackedMatrix* const> gate_up(int64_t layer) const { return gate_up_[static_cast<std::size_t>(layer)]; }
  std::span<const PackedMatrix* const> down(int64_t layer) const { return down_[static_cast<std::size_t>(layer)]; }
  int64_t num_layers() const { return static_cast<int64_t>(gate_up_.size()); }
  int64_t num_local_experts() const { return num_local_experts_; }
  const ExpertDims& dims() const { return dims_; }
  bool is_quantized() const { return type_.is_integer(); }
  /// What a token's row is when it reaches the experts: values of the run's dtype, or codes.
  DType row_dtype(DType run_dtype) const { return is_quantized() ? DType::kI8 : run_dtype; }

 private:
  int64_t num_local_experts_;
  ExpertDims dims_;
  WeightType type_;
  std::vector<std::unique_ptr<PackedMatrix>> owned_;       // [num_layers * num_local_experts * 2]
  std::vector<std::vector<const PackedMatrix*>> gate_up_;  // [num_layers][num_local_experts]
  std::vector<std::vector<const PackedMatrix*>> down_;     // likewise
};

}  // namespace ferry
