#include "runtime/model/trunk.h"

#include <utility>

#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {

/// What the layers of one step share.
struct Trunk::Step {
  const StepInput& input;
  KvCache& kv_cache;
  RecurrentState& recurrent_state;
  TokenDispatcher& dispatcher;
  const Tap* tap;
};

Trunk::Trunk(const ModelConfig& config, const TrunkWeights& weights, MatmulBackend& matmul, KernelContext context, DType dtype,
             Limits limits)
    : config_(config), weights_(weights), context_(context), products_(matmul, context_), limits_(limits) {
  const BlockLimits block{.dtype = dtype,
                          .max_tokens = limits.max_tokens,
                          .max_sequences = limits.max_sequences,
                          .quantization = weights.quantization};
  if (config.num_layers_of(Mixer::kGatedDelta) > 0) gated_delta_.emplace(config, block);
  if (config.num_layers_of(Mixer::kAttention) > 0) attention_.emplace(config, block);
  if (config.num_layers_of(Mixer::kShortConv) > 0) short_conv_.emplace(config, block);
  if (config.num_layers_of(Ffn::kDense) > 0) dense_.emplace(config, block);
  if (config.num_layers_of(Ffn::kMixtureOfExperts) > 0) moe_.emplace(config, block);
  int num_kv = 0, num_recurrent = 0;
  for (const LayerPlan& layer : config.layers)
    state_layer_.push_back(layer.mixer == Mixer::kAttention ? num_kv++ : num_recurrent++);
  hidden_ = Matrix(dtype, limits.max_tokens, config.hidden_dim);
  normed_ = Matrix(dtype, limits.max_tokens, config.hidden_dim);
  block_out_ = Matrix(dtype, limits.max_tokens, config.hidden_dim);
  if (weights.quantization.any()) normed_codes_ = CodeBuffer(limits.max_tokens, config.hidden_dim);
  last_hidden_ = Matrix(dtype, limits.max_logit_rows, config.hidden_dim);
  logits_ = Matrix(dtype, limits.max_logit_rows, config.vocab_size);
  for (MicroBatch& batch : micro_batches_) {
    batch.sequences.reserve(static_cast<std::size_t>(limits.max_sequences));
    batch.block_tables.reserve(static_cast<std::size_t>(limits.max_sequences));
    batch.state_slots.reserve(static_cast<std::size_t>(limits.max_sequences));
  }
}

ConstMatrixView Trunk::forward(const StepInput& input, KvCache& kv_cache, RecurrentState& recurrent_state,
                               TokenDispatcher& dispatcher, const Tap* tap) {
  const auto num_tokens = static_cast<int64_t>(input.token_ids.size());
  FERRY_CHECK_LE(num_tokens, limits_.max_tokens);
  FERRY_CHECK_LE(static_cast<int64_t>(input.sequences.size()), limits_.max_sequences);
  FERRY_CHECK_LE(static_cast<int64_t>(input.logit_rows.size()), limits_.max_logit_rows);
  FERRY_CHECK_EQ(static_cast<int64_t>(input.positions.size()), 3 * num_tokens);
  const Step step{input, kv_cache, recurrent_state, dispatcher, tap};
  // A tap sees the rows of a step together.
  const std::span<const MicroBatch> batches =
      make_micro_batches(input, tap == nullptr ? limits_.min_micro_batch : 0, micro_batches_);
  std::array<DispatchHandle, TokenDispatcher::kMaxInFlight> routed;  // by micro-batch

  embed(context_, {.table = weights_.embed_tokens, .ids = input.token_ids, .out = hidden_.top(num_tokens)});
  if (attention_) attention_->begin_step(input);
  if (tap != nullptr) tap->matrix("hidden", 0, hidden_.top(num_tokens));
  for (int64_t i = 0; i < config_.num_layers(); ++i) {
    for (std::size_t m = 0; m < batches.size(); ++m) {
      check_context().micro_batch = static_cast<int>(m);
      if (i > 0) finish_ffn(step, batches[m], std::move(routed[m]), i - 1);
      check_context().layer = static_cast<int>(i);
      mix(step, batches[m], i);
      routed[m] = begin_ffn(step, batches[m], i);
    }
  }
  for (std::size_t m = 0; m < batches.size(); ++m) {
    check_context().micro_batch = static_cast<int>(m);
    finish_ffn(step, batches[m], std::move(routed[m]), config_.num_layers() - 1);
  }
  check_context().micro_batch = 0;
  check_context().layer = -1;
  return lm_head(step);
}

BlockStep Trunk::block(const Step& step, const MicroBatch& batch) {
  return {.products = products_,
          .input = step.input,
          .batch = batch,
          .normed = rows_of(normed_, batch),
          .normed_codes = normed_codes_,
          .kv_cache = step.kv_cache,
          .recurrent_state = step.recurrent_state,
          .tap = step.tap};
}

void Trunk::norm(Zone zone, ConstMatrixView x, const std::vector<float>& weight, MatrixView out) {
  rms_norm(context_, {.zone = zone,
                      .x = x,
                      .weight = weight.data(),
                      .eps = config_.norm.eps,
                      .rounds_first = config_.norm.rounds_first,
                      .out = out});
}

/// hidden += mixer(norm(hidden))
void Trunk::mix(const Step& step, const MicroBatch& batch, int64_t layer_idx) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const int state_layer = state_layer_[static_cast<std::size_t>(layer_idx)];
  const MatrixView hidden = rows_of(hidden_, batch), out = rows_of(block_out_, batch);
  const BlockStep block_step = block(step, batch);
  norm(Zone::kInputNorm, hidden, layer.mixer_norm, block_step.normed);
  switch (config_.layers[static_cast<std::size_t>(layer_idx)].mixer) {
    case Mixer::kGatedDelta: gated_delta_->run(block_step, std::get<GatedDeltaWeights>(layer.mixer), state_layer, out); break;
    case Mixer::kAttention: attention_->run(block_step, std::get<AttentionWeights>(layer.mixer), state_layer, out); break;
    case Mixer::kShortConv: short_conv_->run(block_step, std::get<ShortConvWeights>(layer.mixer), state_layer, out); break;
  }
  add(context_, {.a = hidden, .b = out, .out = hidden});
}

/// Norm and the feed-forward network as far as it goes without waiting; a mixture's rows leave for their experts.
DispatchHandle Trunk::begin_ffn(const Step& step, const MicroBatch& batch, int64_t layer_idx) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const BlockStep block_step = block(step, batch);
  norm(Zone::kPostAttentionNorm, rows_of(hidden_, batch), layer.ffn_norm, block_step.normed);
  if (const auto* w = std::get_if<MoeWeights>(&layer.ffn)) return moe_->begin(block_step, *w, layer_idx, step.dispatcher);
  dense_->run(block_step, std::get<DenseWeights>(layer.ffn), rows_of(block_out_, batch));
  return {};
}

/// hidden += ffn(norm(hidden))
void Trunk::finish_ffn(const Step& step, const MicroBatch& batch, DispatchHandle routed, int64_t layer_idx) {
  check_context().layer = static_cast<int>(layer_idx);
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const MatrixView hidden = rows_of(hidden_, batch), out = rows_of(block_out_, batch);
  if (const auto* w = std::get_if<MoeWeights>(&layer.ffn))
    moe_->finish(block(step, batch), *w, std::move(routed), step.dispatcher, out);
  add(context_, {.a = hidden, .b = out, .out = hidden});
  if (step.tap != nullptr && layer_idx + 1 < config_.num_layers()) step.tap->matrix("hidden", layer_idx + 1, hidden);
}

/// Final norm and logits of the rows that are asked for.
ConstMatrixView Trunk::lm_head(const Step& step) {
  const auto num_rows = static_cast<int64_t>(step.input.logit_rows.size());
  const MatrixView last = last_hidden_.top(num_rows), logits = logits_.top(num_rows);
  gather_rows(context_, {.x = hidden_.view(), .row_idx = step.input.logit_rows, .out = last});
  norm(Zone::kFinalNorm, last, weights_.norm, last);
  if (step.tap != nullptr) step.tap->matrix("hidden", config_.num_layers(), last);
  const MicroBatch rows{.num_tokens = num_rows};
  products_.linear(Zone::kLmHead, products_.activations(last, normed_codes_, rows, takes_codes(weights_.quantization.lm_head)),
                   *weights_.lm_head, logits);
  return logits;
}

}  // namespace ferry
