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
#include "runtime/state/kv_cache.h"
#include "runtime/state/recurrent_state.h"

// The Qwen3.5-MoE text decoder: embedding, layers of (norm, DeltaNet or gated attention, norm, mixture of experts), final
// norm, lm_head. Follows transformers 5.17.0, models/qwen3_5_moe/modeling_qwen3_5_moe.py, with its rounding points.

namespace ferry {

/// The rows of one step: pieces of prompts and decode rows of any number of sequences, back to back.
struct StepInput {
  std::span<const TokenId> token_ids;            // [T]
  std::span<const int32_t> positions;            // [3, T]: time, height and width of every token; equal for text
  std::span<const SequenceSpan> sequences;       // [num_sequences] cover the rows in order
  std::span<const int32_t* const> block_tables;  // [num_sequences] KV blocks
  std::span<const int32_t> state_slots;  // [num_sequences] rows of the recurrent state; the owner zeroes a new sequence's
  std::span<const int32_t> logit_rows;   // [R] rows whose logits are wanted
  int64_t delta_chunk = 64;              // piece of the DeltaNet's chunk form, tokens
};

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
    int64_t max_tokens = 0;      // rows of a step
    int64_t max_logit_rows = 0;  // rows with logits
    int64_t max_sequences = 0;   // spans of a step
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

  void deltanet_layer(const Step& step, const DeltaNetWeights& w, int64_t state_layer, MatrixView out);
  void attention_layer(const Step& step, const AttentionWeights& w, int64_t kv_layer, MatrixView out);
  void moe_block(const Step& step, const MoeWeights& w, int64_t layer, MatrixView out);
  ConstMatrixView lm_head(const Step& step, MatrixView hidden);
  void fill_rope_table(const StepInput& input);
  struct Activations;
  struct CodeBuffer;
  Activations activations(ConstMatrixView x, CodeBuffer& buffer, bool is_quantized);
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
