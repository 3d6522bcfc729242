#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moe/expert_bank.h"
#include "moe/expert_placement.h"
#include "runtime/base/types.h"
#include "runtime/model/config.h"
#include "runtime/model/weights_loader.h"

// The routed experts of a checkpoint, all that a rank holds or one by one.

namespace ferry {

/// The matrices of every expert of a layer, whichever way they are stored; none of a dense layer that is not sliced.
struct StoredExperts {
  std::vector<StoredMatrix> gate_up;  // [num_experts] of [2 * intermediate_dim, hidden_dim]
  std::vector<StoredMatrix> down;     // [num_experts] of [hidden_dim, intermediate_dim]
};

/// Where a checkpoint has the experts of a layer. Throws as load_trunk does.
StoredExperts find_experts(TensorReader& reader, const ModelConfig& config, const Quantization& quantization,
                           const std::string& prefix, int64_t layer);

/// Reads any expert at any time. Any thread may call it, several at once.
class ExpertLoader {
 public:
  /// Throws as load_trunk does. `checkpoint`, `config` and `matmul` outlive this; `checkpoint` also what it loads (panels stay
  /// in the mapped file).
  ExpertLoader(const Checkpoint& checkpoint, const ModelConfig& config, Matmul& matmul, LoadOptions options);

  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  /// Whether a layer has experts: a dense one that is not sliced has none.
  bool has_experts(int64_t layer) const { return !stored(layer).down.empty(); }
  /// Packed, of one expert of the layer.
  int64_t packed_bytes(int64_t layer) const;
  /// In the checkpoint, of all of `experts`.
  int64_t stored_bytes(const RankExperts& experts) const;
  ExpertDims dims() const { return {config_.hidden_dim, config_.moe.intermediate_dim}; }
  WeightType weight_type() const;
  /// Throws Error{kResourceExhausted} with `what` if `bytes` of where experts lie are not there now.
  void require_memory(int64_t bytes, const std::string& what) const { options_.require_memory(bytes, what); }

  /// Touches no other expert's pages. Compares all bytes with their checksums: who reads one expert uses it next. Throws as
  /// load_trunk does.
  std::shared_ptr<const PackedExpert> load(int64_t layer, LogicalExpertId expert) const {
    return load(layer, expert, MappedChecks::kAlways);
  }
  /// All of `experts` on the pool, which may be the one whose threads compute, with progress. Throws
  /// Error{kResourceExhausted} if they do not fit, and as above.
  ExpertBank load_all(const RankExperts& experts, ThreadPool& pool) const;

 private:
  int64_t stored_bytes(int64_t layer, LogicalExpertId expert) const;
  const StoredExperts& stored(int64_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  std::shared_ptr<const PackedExpert> load(int64_t layer, LogicalExpertId expert, MappedChecks checks) const;

  const ModelConfig& config_;
  Matmul& matmul_;
  const LoadOptions options_;
  TensorReader reader_;
  std::vector<StoredExperts> layers_;  // [num_expert_layers]
};

}  // namespace ferry
