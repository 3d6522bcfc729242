#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "moe/routing/routing_hook.h"
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

/// Sizes of a decoder's buffers.
struct DecoderLimits {
  int64_t max_tokens = 0;        // rows of a step
  int64_t max_logit_rows = 0;    // rows with logits
  int64_t max_sequences = 0;     // spans of a step
  int64_t min_micro_batch = 0;   // rows; a step that gives two micro-batches so many is computed as two, 0: never
  bool screens_lm_head = false;  // rows of which only the token is wanted get it without all logits (ArgmaxScreen)
};

/// What the layers of one step share.
struct LayerStep {
  const StepInput& input;
  KvCache& kv_cache;
  RecurrentState& recurrent_state;
  TokenDispatcher& dispatcher;
  const Tap* tap = nullptr;        // may be null
  RoutingHook* routing = nullptr;  // may be null
};

/// One layer of the decoder, with its weights and its places in the caches and among the experts' layers.
struct LayerRef {
  LayerPlan plan;
  const LayerWeights& weights;
  int state_layer = 0;       // its number among the layers with the same kind of cache
  int64_t expert_layer = 0;  // of what the dispatcher knows
};

/// Runs decoder layers on a residual stream that it owns, a micro-batch at a time. Which mixer and which feed-forward network a
/// layer has is data (layer_plan.h). One thread at a time; allocates nothing after construction.
class LayerRunner {
 public:
  /// Config, matmul and whatever `context` points to must outlive it.
  LayerRunner(const ModelConfig& config, const Quantization& quantization, Stream& stream, DType dtype,
              const DecoderLimits& limits);

  /// [max_tokens, hidden_dim] the residual stream; the caller fills in a step's rows before its first layer.
  MatrixView hidden() { return hidden_.view(); }
  const Products& products() const { return products_; }
  Stream& stream() const { return stream_; }

  /// What the step's rows read, to `out` [T, hidden_dim]: rows of `table` [vocab, hidden_dim], and what is given instead.
  void embed(ConstMatrixView table, const StepInput& input, MatrixView out) const;
  /// Before a step's first layer.
  void begin_step(const StepInput& input);
  // A block's output is added to the residual stream when the next block of the micro-batch begins (residual_norm), or by
  // settle(): before then hidden() lacks it.

  /// hidden += mixer(norm(hidden))
  void mix(const LayerStep& step, MicroBatch& batch, const LayerRef& layer);
  /// Norm and the feed-forward network as far as it goes without waiting; a mixture's rows leave for their experts.
  DispatchHandle begin_ffn(const LayerStep& step, MicroBatch& batch, const LayerRef& layer);
  /// hidden += ffn(norm(hidden))
  void finish_ffn(const LayerStep& step, MicroBatch& batch, DispatchHandle routed, const LayerRef& layer);
  /// Adds what is still to be added.
  void settle(MicroBatch& batch);
  /// The model's RMS norm; out may be x.
  void norm(Zone zone, ConstMatrixView x, const Array<float>& weight, MatrixView out) const;

 private:
  BlockStep block(const LayerStep& step, const MicroBatch& batch, const Activations& normed);
  Activations begin_block(Zone zone, MicroBatch& batch, const Array<float>& weight, bool takes_codes);
  RmsNormArgs norm_args(Zone zone, ConstMatrixView x, const Array<float>& weight, MatrixView out) const;
  bool takes_codes(const LayerPlan& plan) const;

  const NormPlan norm_;
  Stream& stream_;
  Products products_;
  std::optional<GatedDeltaMixer> gated_delta_;
  std::optional<AttentionMixer> attention_;
  std::optional<ShortConvMixer> short_conv_;
  std::optional<DenseFfn> dense_;
  std::optional<MixtureOfExperts> moe_;
  Matrix hidden_;            // [T, hidden_dim]
  Matrix normed_;            // [T, hidden_dim] what a block reads
  Matrix block_out_;         // [T, hidden_dim] what it adds to the stream
  CodeBuffer normed_codes_;  // of normed
};

}  // namespace ferry
