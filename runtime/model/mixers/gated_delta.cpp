#include "runtime/model/mixers/gated_delta.h"

#include <algorithm>

#include "runtime/model/mixers/held_rows.h"

namespace ferry {
GatedDeltaMixer::GatedDeltaMixer(const ModelConfig& config, const BlockLimits& limits)
    : plan_(config.gated_delta), norm_eps_(config.norm.eps), is_quantized_(ferry::takes_codes(limits.quantization.mixers)) {
  const int64_t t = limits.max_tokens;
  qkv_ = Matrix(limits.stream.memory(), limits.dtype, t, plan_.conv_channels());
  conv_out_ = Matrix(limits.stream.memory(), limits.dtype, t, plan_.conv_channels());
  z_ = Matrix(limits.stream.memory(), limits.dtype, t, plan_.value_dim());
  delta_out_ = Matrix(limits.stream.memory(), limits.dtype, t, plan_.value_dim());
  a_gate_ = Matrix(limits.stream.memory(), limits.dtype, t, plan_.num_v_heads);
  b_gate_ = Matrix(limits.stream.memory(), limits.dtype, t, plan_.num_v_heads);
  decay_ = Matrix(limits.stream.memory(), DType::kF32, t, plan_.num_v_heads);
  beta_ = Matrix(limits.stream.memory(), DType::kF32, t, plan_.num_v_heads);
  conv_states_.resize(static_cast<std::size_t>(limits.max_sequences));
  delta_states_.resize(static_cast<std::size_t>(limits.max_sequences));
  held_conv_.resize(static_cast<std::size_t>(limits.max_sequences));
  held_delta_.resize(static_cast<std::size_t>(limits.max_sequences));
  if (is_quantized_) out_codes_ = CodeBuffer(limits.stream.memory(), t, plan_.value_dim());
}

void GatedDeltaMixer::find_states(const BlockStep& step, int state_layer) {
  RecurrentState& state = step.recurrent_state;
  const int64_t num_gates = state.options().max_held * plan_.num_v_heads;
  for (std::size_t s = 0; s < step.batch.state_slots.size(); ++s) {
    const int32_t slot = step.batch.state_slots[s];
    conv_states_[s] = state.conv(state_layer, slot).raw();
    delta_states_[s] = state.delta(state_layer, slot).raw();
    held_conv_[s] = state.held_conv(state_layer, slot).raw();
    const Address<const float> gates = state.held_gates(state_layer, slot);
    held_delta_[s] = {.qkv = state.held_delta(state_layer, slot), .decay = gates, .beta = gates + num_gates};
  }
}

/// Puts what the batch's spans hold back beside their states; what they replayed is no longer needed.
void GatedDeltaMixer::hold_rows(const BlockStep& step, int state_layer) {
  RecurrentState& state = step.recurrent_state;
  Stream& stream = step.products.stream();
  const int64_t num_heads = plan_.num_v_heads, num_gates = state.options().max_held * num_heads;
  for (std::size_t s = 0; s < step.batch.sequences.size(); ++s) {
    const SequenceSpan& span = step.batch.sequences[s];
    if (span.num_held == 0) continue;
    const int32_t slot = step.batch.state_slots[s];
    const int64_t first = step.batch.first_row + span.first_row + span.num_taken();
    copy_held_rows(stream, qkv_.view().rows_from(first, span.num_held), state.options(), state.held_conv(state_layer, slot));
    copy_held_rows(stream, conv_out_.view().rows_from(first, span.num_held), state.options(),
                   state.held_delta(state_layer, slot));
    const Address<float> gates = state.held_gates(state_layer, slot);
    const auto place = [&](Address<float> rows) {
      return MatrixView{
          reinterpret_cast<std::byte*>(rows.raw()), DType::kF32, span.num_held, num_heads, num_heads, rows.space()};
    };
    copy_rows(stream, decay_.view().rows_from(first, span.num_held), place(gates));
    copy_rows(stream, beta_.view().rows_from(first, span.num_held), place(gates + num_gates));
  }
}

/// From the projections of the batch's rows to delta_out_, with the states that find_states() found.
GatedDeltaMixArgs GatedDeltaMixer::mix_args(const BlockStep& step, const GatedDeltaWeights& w) {
  const MicroBatch& batch = step.batch;
  const std::size_t num_sequences = batch.sequences.size();
  const Address<float> decay = row_of(decay_, batch.first_row), beta = row_of(beta_, batch.first_row);
  const MatrixView delta_out = rows_of(delta_out_, batch), heads = delta_out.split_rows(plan_.num_v_heads);
  return {.conv = {.x = rows_of(qkv_, batch),
                   .weight = w.conv1d.data(),
                   .kernel = plan_.conv_kernel,
                   .activation = Activation::kSilu,
                   .sequences = batch.sequences,
                   .states = std::span(conv_states_).first(num_sequences),
                   .held = std::span(held_conv_).first(num_sequences),
                   .out = rows_of(conv_out_, batch)},
          .gates = {.a = rows_of(a_gate_, batch),
                    .b = rows_of(b_gate_, batch),
                    .a_log = w.a_log.data(),
                    .dt_bias = w.dt_bias.data(),
                    .decay = decay,
                    .beta = beta},
          .rule = {.qkv = rows_of(conv_out_, batch),
                   .decay = decay,
                   .beta = beta,
                   .num_k_heads = plan_.num_k_heads,
                   .num_v_heads = plan_.num_v_heads,
                   .k_dim = plan_.k_dim,
                   .v_dim = plan_.v_dim,
                   .chunk = step.input.delta_chunk,
                   .sequences = batch.sequences,
                   .states = std::span(delta_states_).first(num_sequences),
                   .held = std::span(held_delta_).first(num_sequences),
                   .out = delta_out},
          .norm = {.x = heads,  // [T * num_v_heads, v_dim]
                   .gate = rows_of(z_, batch).split_rows(plan_.num_v_heads),
                   .weight = w.norm.data(),
                   .weight_dtype = w.norm_dtype,
                   .eps = norm_eps_,
                   .out = heads}};
}

/// The same, and what is to be saved of the states on the way. Rows that are replayed or held are the first wave's.
void GatedDeltaMixer::mix_in_waves(const BlockStep& step, const GatedDeltaMixArgs& args, int state_layer) {
  Stream& stream = step.products.stream();
  waves_.cut(step.batch);
  for (std::size_t wave = 0; wave < waves_.num_waves(); ++wave) {
    CausalConv1dArgs conv = args.conv;
    conv.sequences = waves_.spans(wave);
    conv.states = waves_.choose(wave, args.conv.states, wave_conv_states_);
    if (wave > 0) conv.held = {};
    causal_conv1d(stream, conv);
    for (const StateSave& save : waves_.saves(wave))
      step.recurrent_state.save_conv(stream, state_layer, save.slot, save.snapshot);
  }
  delta_gates(stream, args.gates);
  for (std::size_t wave = 0; wave < waves_.num_waves(); ++wave) {
    GatedDeltaRuleArgs rule = args.rule;
    rule.sequences = waves_.spans(wave);
    rule.states = waves_.choose(wave, args.rule.states, wave_delta_states_);
    if (wave > 0) rule.held = {};
    gated_delta_rule(stream, rule);
    for (const StateSave& save : waves_.saves(wave))
      step.recurrent_state.save_delta(stream, state_layer, save.slot, save.snapshot);
  }
  gated_rms_norm(stream, args.norm);
}

void GatedDeltaMixer::run(const BlockStep& step, const GatedDeltaWeights& w, int state_layer, MatrixView out) {
  const MicroBatch& batch = step.batch;
  const Products& products = step.products;
  find_states(step, state_layer);
  products.linears(step.normed, {{Zone::kInProjQkv, w.in_proj_qkv.get(), rows_of(qkv_, batch)},
                                 {Zone::kInProjZ, w.in_proj_z.get(), rows_of(z_, batch)},
                                 {Zone::kInProjB, w.in_proj_b.get(), rows_of(b_gate_, batch)},
                                 {Zone::kInProjA, w.in_proj_a.get(), rows_of(a_gate_, batch)}});
  const GatedDeltaMixArgs mix = mix_args(step, w);
  if (batch.saves.empty()) {
    gated_delta_mix(products.stream(), mix);
  } else {
    mix_in_waves(step, mix, state_layer);
  }
  hold_rows(step, state_layer);
  const MatrixView delta_out = rows_of(delta_out_, batch);
  products.linear(Zone::kOutProj, products.activations(delta_out, out_codes_, batch, is_quantized_), *w.out_proj, out);
}

void GatedDeltaMixer::describe(const ModelConfig& config, OperatorList& list) {
  const GatedDeltaPlan& p = config.gated_delta;
  const int64_t hidden = config.hidden_dim, channels = p.conv_channels(), value = p.value_dim(), heads = p.num_v_heads;
  const double act = list.activation_bytes(), state = as_double(heads * p.k_dim * p.v_dim);
  const std::optional<WeightType>& type = list.quantization().mixers;
  list.product(Zone::kInProjQkv, hidden, channels, type);
  list.product(Zone::kInProjZ, hidden, value, type);
  list.product(Zone::kInProjB, hidden, heads);
  list.product(Zone::kInProjA, hidden, heads);
  list.convolution(Zone::kCausalConv1d, channels, p.conv_kernel);
  const TensorFacts gate = list.activation({OperatorList::kRows, heads}),
                    gate32 = OperatorList::fp32({OperatorList::kRows, heads});
  list.add({.zone = Zone::kDeltaGates,
            .flop = {.per_row = 10 * as_double(heads)},
            .bytes = {.per_row = as_double(heads) * (2 * act + 2 * 4)},
            .inputs = {gate, gate},
            .outputs = {gate32, gate32}});
  // What the recurrence needs, in the chunk form too: decay, S^T k, k delta^T, S^T q. The state is read and written once.
  const TensorFacts key = list.activation({OperatorList::kRows, p.num_k_heads, p.k_dim}),
                    values = list.activation({OperatorList::kRows, heads, p.v_dim});
  const TensorFacts states = OperatorList::fp32({OperatorList::kB, heads, p.v_dim, p.k_dim});
  for (const Zone zone : {Zone::kRecurrentDeltaRule, Zone::kChunkDeltaRule}) {
    list.add({.zone = zone,
              .factors = Factors::kValues,
              .flop = {.per_row = 7 * state},
              .bytes = {.per_row = as_double(channels + value) * act + 2 * 4 * as_double(heads), .per_b = 2 * 4 * state},
              .inputs = {key, key, values, gate32, gate32, states},
              .outputs = {values, states}});
  }
  constexpr double kGatedNormFlop = 8;  // an element, by convention
  list.rows_per_token(heads);
  list.elementwise(Zone::kGatedNorm, p.v_dim, kGatedNormFlop, 2);
  list.rows_per_token(1);
  list.product(Zone::kOutProj, value, hidden, type);
}

}  // namespace ferry
