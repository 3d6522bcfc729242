#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "moe/token_dispatcher.h"
#include "runtime/model/config.h"
#include "runtime/model/qwen3_5_weights.h"
#include "runtime/model/step_input.h"
#include "runtime/state/kv_cache.h"
#include "runtime/state/recurrent_state.h"

// The Qwen3.5-MoE text decoder: embedding, layers of (norm, DeltaNet or gated attention, norm, mixture of experts), final
// norm, lm_head. Follows transformers 5.17.0, models/qwen3_5_moe/modeling_qwen3_5_moe.py, with its rounding points.

namespace ferry {

/// Sees intermediates by name ("hidden", "topk_ids", …); used by parity tests and `ferry dump`. `layer` is -1 outside of
/// layers.
struct Tap {
  std::function<void(const char* name, int64_t layer, ConstMatrixView values)> matrix;
  std::function<void(int64_t layer, std::span<const int32_t> ids, std::span<const float> weights)> routing;  // [T, top_k] each
};

/// One thread at a time. Owns the step's buffers, sized at construction; forward() allocates nothing of their size.
class Qwen35Model {
 public:
  struct Limits {
    int64_t max_tokens = 0;       // rows of a step
    int64_t max_logit_rows = 0;   // rows with logits
    int64_t max_sequences = 0;    // spans of a step
    int64_t min_micro_batch = 0;  // rows; a step that gives two micro-batches so many is computed as two, 0: never
  };

  /// Weights, matmul and whatever `context` points to must outlive the model.
  Qwen35Model(const ModelConfig& config, const TrunkWeights& weights, MatmulBackend& matmul, KernelContext context, DType dtype,
              Limits limits);

  ~Qwen35Model();

  /// Runs the step, updates the caches and returns logits [R, vocab] in the run's dtype, valid until the next call. Throws
  /// what the dispatcher throws. `tap` may be null.
  ConstMatrixView forward(const StepInput& input, KvCache& kv_cache, RecurrentState& recurrent_state,
                          TokenDispatcher& dispatcher, const Tap* tap = nullptr);

  const Limits& limits() const { return limits_; }

 private:
  struct Buffers;
  struct Step;

  struct Activations;
  struct CodeBuffer;

  void mixer_block(const Step& step, const MicroBatch& batch, const LayerWeights& layer, int64_t mixer_idx);
  void deltanet_layer(const Step& step, const MicroBatch& batch, const DeltaNetWeights& w, int64_t state_layer, MatrixView out);
  void attention_layer(const Step& step, const MicroBatch& batch, const AttentionWeights& w, int64_t kv_layer, MatrixView out);
  DispatchHandle begin_moe(const Step& step, const MicroBatch& batch, const LayerWeights& layer, int64_t layer_idx);
  void finish_moe(const Step& step, const MicroBatch& batch, DispatchHandle routed, int64_t layer_idx);
  ConstMatrixView lm_head(const Step& step);
  void fill_rope_table(const StepInput& input);
  Activations activations(ConstMatrixView x, CodeBuffer& buffer, const MicroBatch& batch, bool is_quantized);
  void linear(Zone zone, const Activations& x, const PackedMatrix& weights, MatrixView out);

  const ModelConfig& config_;
  const TrunkWeights& weights_;
  MatmulBackend& matmul_;
  KernelContext context_;
  DType dtype_;
  Limits limits_;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace ferry
