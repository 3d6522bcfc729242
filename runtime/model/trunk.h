#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "moe/token_dispatcher.h"
#include "runtime/model/config.h"
#include "runtime/model/ffn/dense.h"
#include "runtime/model/ffn/mixture_of_experts.h"
#include "runtime/model/mixers/attention.h"
#include "runtime/model/mixers/gated_delta.h"
#include "runtime/model/mixers/short_conv.h"
#include "runtime/model/step_input.h"
#include "runtime/model/tap.h"
#include "runtime/model/weights.h"

namespace ferry {

/// The decoder: embedding, the layers of the plan, final norm, lm_head. Which mixer and which feed-forward network a layer has
/// is data (layer_plan.h). One thread at a time. Owns the step's buffers, sized at construction; forward() allocates nothing of
/// their size.
class Trunk {
 public:
  struct Limits {
    int64_t max_tokens = 0;       // rows of a step
    int64_t max_logit_rows = 0;   // rows with logits
    int64_t max_sequences = 0;    // spans of a step
    int64_t min_micro_batch = 0;  // rows; a step that gives two micro-batches so many is computed as two, 0: never
  };

  /// Config, weights, matmul and whatever `context` points to must outlive the trunk.
  Trunk(const ModelConfig& config, const TrunkWeights& weights, MatmulBackend& matmul, KernelContext context, DType dtype,
        Limits limits);

  /// Runs the step, updates the caches and returns logits [R, vocab] in the run's dtype, valid until the next call. Throws
  /// what the dispatcher throws. `tap` may be null.
  ConstMatrixView forward(const StepInput& input, KvCache& kv_cache, RecurrentState& recurrent_state,
                          TokenDispatcher& dispatcher, const Tap* tap = nullptr);

  const Limits& limits() const { return limits_; }

 private:
  struct Step;

  BlockStep block(const Step& step, const MicroBatch& batch);
  void mix(const Step& step, const MicroBatch& batch, int64_t layer_idx);
  DispatchHandle begin_ffn(const Step& step, const MicroBatch& batch, int64_t layer_idx);
  void finish_ffn(const Step& step, const MicroBatch& batch, DispatchHandle routed, int64_t layer_idx);
  void norm(Zone zone, ConstMatrixView x, const std::vector<float>& weight, MatrixView out);
  ConstMatrixView lm_head(const Step& step);

  const ModelConfig& config_;
  const TrunkWeights& weights_;
  KernelContext context_;
  Products products_;
  Limits limits_;
  std::vector<int> state_layer_;  // [num_layers] of each layer: its number among the layers with the same kind of cache

  std::optional<GatedDeltaMixer> gated_delta_;
  std::optional<AttentionMixer> attention_;
  std::optional<ShortConvMixer> short_conv_;
  std::optional<DenseFfn> dense_;
  std::optional<MixtureOfExperts> moe_;

  Matrix hidden_;                // [T, hidden_dim] the residual stream
  Matrix normed_;                // [T, hidden_dim] what a block reads
  Matrix block_out_;             // [T, hidden_dim] what it adds to the stream
  CodeBuffer normed_codes_;      // of normed, and of what lm_head reads
  Matrix last_hidden_, logits_;  // [R, hidden_dim], [R, vocab]
  std::array<MicroBatch, 2> micro_batches_;
};

}  // namespace ferry
