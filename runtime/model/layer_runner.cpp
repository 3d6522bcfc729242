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

BlockStep LayerRunner::block(const LayerStep& step, const MicroBatch& batch) {
  return {.products = products_,
          .input = step.input,
          .batch = batch,
          .normed = rows_of(normed_, batch),
          .normed_codes = normed_codes_,
          .kv_cache = step.kv_cache,
          .recurrent_state = step.recurrent_state,
          .tap = step.tap};
}

void LayerRunner::norm(Zone zone, ConstMatrixView x, const Array<float>& weight, MatrixView out) const {
  rms_norm(stream_,
           {.zone = zone, .x = x, .weight = weight.data(), .eps = norm_.eps, .rounds_first = norm_.rounds_first, .out = out});
}

void LayerRunner::mix(const LayerStep& step, const MicroBatch& batch, const LayerRef& layer) {
  const MatrixView hidden = rows_of(hidden_, batch), out = rows_of(block_out_, batch);
  const BlockStep block_step = block(step, batch);
  const auto& weights = layer.weights.mixer;
  norm(Zone::kInputNorm, hidden, layer.weights.mixer_norm, block_step.normed);
  switch (layer.plan.mixer) {
    case Mixer::kGatedDelta: gated_delta_->run(block_step, std::get<GatedDeltaWeights>(weights), layer.state_layer, out); break;
    case Mixer::kAttention: attention_->run(block_step, std::get<AttentionWeights>(weights), layer.state_layer, out); break;
    case Mixer::kShortConv: short_conv_->run(block_step, std::get<ShortConvWeights>(weights), layer.state_layer, out); break;
  }
  add(stream_, {.a = hidden, .b = out, .out = hidden});
}

DispatchHandle LayerRunner::begin_ffn(const LayerStep& step, const MicroBatch& batch, const LayerRef& layer) {
  const BlockStep block_step = block(step, batch);
  norm(Zone::kPostAttentionNorm, rows_of(hidden_, batch), layer.weights.ffn_norm, block_step.normed);
  if (const auto* w = std::get_if<MoeWeights>(&layer.weights.ffn))
    return moe_->begin(block_step, *w, layer.expert_layer, step.dispatcher);
  dense_->run(block_step, std::get<DenseWeights>(layer.weights.ffn), rows_of(block_out_, batch));
  return {};
}

void LayerRunner::finish_ffn(const LayerStep& step, const MicroBatch& batch, DispatchHandle routed, const LayerRef& layer) {
  const MatrixView hidden = rows_of(hidden_, batch), out = rows_of(block_out_, batch);
  if (const auto* w = std::get_if<MoeWeights>(&layer.weights.ffn))
    moe_->finish(block(step, batch), *w, std::move(routed), step.dispatcher, out);
  add(stream_, {.a = hidden, .b = out, .out = hidden});
}

}  // namespace ferry
