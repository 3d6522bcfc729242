#include "runtime/model/layer_runner.h"

#include <utility>

#include "runtime/base/check.h"

namespace ferry {

LayerRunner::LayerRunner(const ModelConfig& config, const Quantization& quantization, Stream& stream, DType dtype,
                         const DecoderLimits& limits)
    : norm_(config.norm), stream_(stream), products_(stream) {
  Memory& memory = stream.memory();
  const BlockLimits block{.stream = stream,
                          .dtype = dtype,
                          .max_tokens = limits.max_tokens,
                          .max_sequences = limits.max_sequences,
                          .quantization = quantization};
  if (config.num_layers_of(Mixer::kGatedDelta) > 0) gated_delta_.emplace(config, block);
  if (config.num_layers_of(Mixer::kAttention) > 0 || config.mtp) attention_.emplace(config, block);
  if (config.num_layers_of(Mixer::kShortConv) > 0) short_conv_.emplace(config, block);
  if (config.num_layers_of(Ffn::kDense) > 0) dense_.emplace(config, block);
  if (config.num_layers_of(Ffn::kMixtureOfExperts) > 0) moe_.emplace(config, block);
  hidden_ = Matrix(memory, dtype, limits.max_tokens, config.hidden_dim);
  normed_ = Matrix(memory, dtype, limits.max_tokens, config.hidden_dim);
  block_out_ = Matrix(memory, dtype, limits.max_tokens, config.hidden_dim);
  if (quantization.any()) normed_codes_ = CodeBuffer(memory, limits.max_tokens, config.hidden_dim);
}

void LayerRunner::embed(ConstMatrixView table, const StepInput& input, MatrixView out) const {
  ferry::embed(stream_, {.table = table, .ids = input.token_ids, .out = out});
  for (const GivenRows& given : input.given) {
    FERRY_CHECK(given.embeddings.dtype == out.dtype && given.embeddings.cols == out.cols);
    copy_rows(stream_, given.embeddings, out.rows_from(given.first_row, given.embeddings.rows));
  }
}

void LayerRunner::begin_step(const StepInput& input) {
  if (attention_) attention_->begin_step(input);
}

BlockStep LayerRunner::block(const LayerStep& step, const MicroBatch& batch, const Activations& normed) {
  return {.products = products_,
          .input = step.input,
          .batch = batch,
          .normed = normed,
          .kv_cache = step.kv_cache,
          .recurrent_state = step.recurrent_state,
          .tap = step.tap,
          .routing = step.routing};
}

RmsNormArgs LayerRunner::norm_args(Zone zone, ConstMatrixView x, const Array<float>& weight, MatrixView out) const {
  return {.zone = zone, .x = x, .weight = weight.data(), .eps = norm_.eps, .rounds_first = norm_.rounds_first, .out = out};
}

void LayerRunner::norm(Zone zone, ConstMatrixView x, const Array<float>& weight, MatrixView out) const {
  rms_norm(stream_, norm_args(zone, x, weight, out));
}

/// The residual stream's rows, with what the block before added, as the next block reads them.
Activations LayerRunner::begin_block(Zone zone, MicroBatch& batch, const Array<float>& weight, bool takes_codes) {
  const MatrixView hidden = rows_of(hidden_, batch), normed = rows_of(normed_, batch);
  ResidualNormArgs args{.residual = hidden, .norm = norm_args(zone, hidden, weight, normed)};
  if (std::exchange(batch.has_addend, false)) args.added = rows_of(block_out_, batch);
  const std::optional<ExpertSumArgs> experts = std::exchange(batch.expert_sum, std::nullopt);
  if (experts) args.experts = &*experts;
  Activations out{normed, {}};
  if (takes_codes) {
    args.codes = {.x = normed, .codes = normed_codes_.codes(batch, normed.cols), .scales = normed_codes_.scales(batch)};
    out.codes = {args.codes.codes, args.codes.scales};
  }
  residual_norm(stream_, args);
  return out;
}

void LayerRunner::settle(MicroBatch& batch) {
  const MatrixView hidden = rows_of(hidden_, batch);
  if (const auto experts = std::exchange(batch.expert_sum, std::nullopt)) expert_sum(stream_, *experts);
  if (std::exchange(batch.has_addend, false)) add(stream_, {.a = hidden, .b = rows_of(block_out_, batch), .out = hidden});
}

bool LayerRunner::takes_codes(const LayerPlan& plan) const {
  switch (plan.mixer) {
    case Mixer::kGatedDelta: return gated_delta_->takes_codes();
    case Mixer::kAttention: return attention_->takes_codes();
    case Mixer::kShortConv: return short_conv_->takes_codes();
  }
  return false;
}

void LayerRunner::mix(const LayerStep& step, MicroBatch& batch, const LayerRef& layer) {
  const MatrixView out = rows_of(block_out_, batch);
  const auto& weights = layer.weights.mixer;
  const BlockStep block_step =
      block(step, batch, begin_block(Zone::kInputNorm, batch, layer.weights.mixer_norm, takes_codes(layer.plan)));
  switch (layer.plan.mixer) {
    case Mixer::kGatedDelta: gated_delta_->run(block_step, std::get<GatedDeltaWeights>(weights), layer.state_layer, out); break;
    case Mixer::kAttention: attention_->run(block_step, std::get<AttentionWeights>(weights), layer.state_layer, out); break;
    case Mixer::kShortConv: short_conv_->run(block_step, std::get<ShortConvWeights>(weights), layer.state_layer, out); break;
  }
  batch.has_addend = true;
}

DispatchHandle LayerRunner::begin_ffn(const LayerStep& step, MicroBatch& batch, const LayerRef& layer) {
  const auto* moe = std::get_if<MoeWeights>(&layer.weights.ffn);
  const bool takes_codes = moe != nullptr ? moe_->takes_codes(*moe, step.dispatcher) : dense_->takes_codes();
  const BlockStep block_step =
      block(step, batch, begin_block(Zone::kPostAttentionNorm, batch, layer.weights.ffn_norm, takes_codes));
  if (moe != nullptr) return moe_->begin(block_step, *moe, layer.expert_layer, step.dispatcher);
  dense_->run(block_step, std::get<DenseWeights>(layer.weights.ffn), rows_of(block_out_, batch));
  return {};
}

void LayerRunner::finish_ffn(const LayerStep& step, MicroBatch& batch, DispatchHandle routed, const LayerRef& layer) {
  if (const auto* w = std::get_if<MoeWeights>(&layer.weights.ffn))
    batch.expert_sum = moe_->finish(block(step, batch, {}), *w, std::move(routed), step.dispatcher, rows_of(block_out_, batch));
  batch.has_addend = true;
}

}  // namespace ferry
