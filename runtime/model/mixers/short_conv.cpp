#include "runtime/model/mixers/short_conv.h"

#include "profiler/span_chain.h"
#include "runtime/model/mixers/held_rows.h"

namespace ferry {

ShortConvMixer::ShortConvMixer(const ModelConfig& config, const BlockLimits& limits)
    : plan_(config.short_conv), is_quantized_(ferry::takes_codes(limits.quantization.mixers)) {
  bcx_ = Matrix(limits.stream.memory(), limits.dtype, limits.max_tokens, 3 * plan_.channels);
  gated_ = Matrix(limits.stream.memory(), limits.dtype, limits.max_tokens, plan_.channels);
  conv_out_ = Matrix(limits.stream.memory(), limits.dtype, limits.max_tokens, plan_.channels);
  states_.resize(static_cast<std::size_t>(limits.max_sequences));
  held_.resize(static_cast<std::size_t>(limits.max_sequences));
  if (is_quantized_) out_codes_ = CodeBuffer(limits.stream.memory(), limits.max_tokens, plan_.channels);
}

/// And saves on the way what is to be saved of the states. Rows that are replayed or held are the first wave's.
void ShortConvMixer::convolve(const BlockStep& step, const CausalConv1dArgs& args, int state_layer) {
  Stream& stream = step.products.stream();
  if (step.batch.saves.empty()) return causal_conv1d(stream, args);
  waves_.cut(step.batch);
  for (std::size_t wave = 0; wave < waves_.num_waves(); ++wave) {
    CausalConv1dArgs part = args;
    part.sequences = waves_.spans(wave);
    part.states = waves_.choose(wave, args.states, wave_states_);
    if (wave > 0) part.held = {};
    causal_conv1d(stream, part);
    for (const StateSave& save : waves_.saves(wave))
      step.recurrent_state.save_conv(stream, state_layer, save.slot, save.snapshot);
  }
}

void ShortConvMixer::run(const BlockStep& step, const ShortConvWeights& w, int state_layer, MatrixView out) {
  const MicroBatch& batch = step.batch;
  const Products& products = step.products;
  Stream& stream = products.stream();
  const std::size_t num_sequences = batch.sequences.size();
  for (std::size_t s = 0; s < num_sequences; ++s) {
    states_[s] = step.recurrent_state.conv(state_layer, batch.state_slots[s]).raw();
    held_[s] = step.recurrent_state.held_conv(state_layer, batch.state_slots[s]).raw();
  }
  const MatrixView bcx = rows_of(bcx_, batch), gated = rows_of(gated_, batch), conv_out = rows_of(conv_out_, batch);
  products.linear(Zone::kConvInProj, step.normed, *w.in_proj, bcx);
  const auto part = [&](int64_t i) { return bcx.cols_from(i * plan_.channels, plan_.channels); };
  multiply(stream, {.zone = Zone::kConvGate, .a = part(0), .b = part(2), .out = gated});
  convolve(step,
           {.zone = Zone::kShortConv,
            .x = gated,
            .weight = w.conv1d.data(),
            .kernel = plan_.conv_kernel,
            .activation = Activation::kNone,
            .sequences = batch.sequences,
            .states = std::span(states_).first(num_sequences),
            .held = std::span(held_).first(num_sequences),
            .out = conv_out},
           state_layer);
  for (std::size_t s = 0; s < num_sequences; ++s) {
    const SequenceSpan& span = batch.sequences[s];
    copy_held_rows(stream, gated.rows_from(span.first_row + span.num_taken(), span.num_held), step.recurrent_state.options(),
                   step.recurrent_state.held_conv(state_layer, batch.state_slots[s]));
  }
  const SpanChain chain;
  multiply(stream, {.zone = Zone::kConvGate, .a = part(1), .b = conv_out, .out = conv_out});
  products.linear(Zone::kConvOutProj, products.activations(conv_out, out_codes_, batch, is_quantized_), *w.out_proj, out);
}

void ShortConvMixer::describe(const ModelConfig& config, OperatorList& list) {
  const ShortConvPlan& p = config.short_conv;
  const std::optional<WeightType>& type = list.quantization().mixers;
  list.product(Zone::kConvInProj, config.hidden_dim, 3 * p.channels, type);
  list.elementwise(Zone::kConvGate, p.channels, 1, 2);
  list.convolution(Zone::kShortConv, p.channels, p.conv_kernel);
  list.product(Zone::kConvOutProj, p.channels, config.hidden_dim, type);
}

}  // namespace ferry
