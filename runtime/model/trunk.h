#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layer_runner.h"
#include "runtime/model/output_head.h"

namespace ferry {

/// The decoder: embedding, the layers of the plan, final norm, lm_head. One thread at a time; forward() allocates nothing of
/// the size of its buffers.
class Trunk {
 public:
  /// Config, weights, matmul and whatever `context` points to must outlive the trunk.
  Trunk(const ModelConfig& config, const TrunkWeights& weights, Stream& stream, DType dtype, const DecoderLimits& limits);

  /// Runs the step, updates the caches and returns logits [R, vocab] in the run's dtype, valid until the next call and there
  /// unless head().pending(). Throws what the dispatcher throws. `tap` and `routing` may be null.
  ConstMatrixView forward(const StepInput& input, KvCache& kv_cache, RecurrentState& recurrent_state,
                          TokenDispatcher& dispatcher, const Tap* tap = nullptr, RoutingHook* routing = nullptr);

  /// Logits [rows.size(), vocab] of those rows of the last step, as forward() gives them, at most max_logit_rows at once; while
  /// hidden() has them. Valid until the next call of either.
  ConstMatrixView logits_of(std::span<const int32_t> rows) { return head_.run(runner_.hidden(), rows, weights_.norm); }

  /// [T, hidden_dim] the last step's rows behind the last layer, before the final norm; until the runner is used for others.
  ConstMatrixView hidden() { return runner_.hidden(); }
  /// Lent to what works between two steps.
  LayerRunner& runner() { return runner_; }
  OutputHead& head() { return head_; }
  const DecoderLimits& limits() const { return limits_; }

 private:
  void show(const Tap& tap, int64_t layer, ConstMatrixView rows);

  const ModelConfig& config_;
  const TrunkWeights& weights_;
  DecoderLimits limits_;
  LayerRunner runner_;
  OutputHead head_;
  std::vector<LayerRef> layers_;
  std::array<MicroBatch, 2> micro_batches_;
};

}  // namespace ferry
