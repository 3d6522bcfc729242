#include "runtime/model/ffn/mixture_of_experts.h"

#include <array>
#include <span>
#include <utility>

#include "profiler/span_chain.h"

namespace ferry {
namespace {

void describe_router(const MoePlan& p, int64_t hidden, OperatorList& list) {
  list.product(Zone::kRouter, hidden, p.num_experts);
  list.add(
      {.zone = Zone::kGatingTopK,
       .flop = {.per_row = 5 * as_double(p.num_experts)},
       .bytes = {.per_row = as_double(p.num_experts) * list.activation_bytes() + 8 * as_double(p.top_k)},
       .inputs = {list.activation({OperatorList::kRows, p.num_experts})},
       .outputs = {OperatorList::fp32({OperatorList::kRows, p.top_k}), OperatorList::indices({OperatorList::kRows, p.top_k})}});
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const ModelConfig& config, const BlockLimits& limits)
    : plan_(config.moe), is_shared_quantized_(ferry::takes_codes(limits.quantization.shared)) {
  const int64_t t = limits.max_tokens, shared = plan_.shared_intermediate_dim;
  topk_idx_ = Mirror<int32_t>(limits.stream, t * plan_.top_k);
  topk_weights_ = Mirror<float>(limits.stream, t * plan_.top_k);
  if (plan_.is_sliced) {
    for (int64_t i = 0; i < topk_idx_.size(); ++i) {
      topk_idx_.host()[i] = static_cast<int32_t>(i % plan_.top_k);
      topk_weights_.host()[i] = 1.0F;
    }
    topk_idx_.send(0, topk_idx_.size());
    topk_weights_.send(0, topk_weights_.size());
  } else {
    router_logits_ = Matrix(limits.stream.memory(), limits.dtype, t, plan_.num_experts);
  }
  if (shared == 0) return;
  shared_activated_ = Matrix(limits.stream.memory(), limits.dtype, t, shared);
  shared_out_ = Matrix(limits.stream.memory(), limits.dtype, t, config.hidden_dim);
  shared_gate_ = Matrix(limits.stream.memory(), limits.dtype, t, 1);
  if (is_shared_quantized_) shared_codes_ = CodeBuffer(limits.stream.memory(), t, shared);
}

bool MixtureOfExperts::takes_codes(const MoeWeights& w, const TokenDispatcher& dispatcher) const {
  return dispatcher.row_dtype() == DType::kI8 || (w.shared_down != nullptr && is_shared_quantized_);
}

DispatchHandle MixtureOfExperts::begin(const BlockStep& step, const MoeWeights& w, int64_t layer_idx,
                                       TokenDispatcher& dispatcher) {
  const MicroBatch& batch = step.batch;
  const Activations& x = step.normed;
  // Rows that leave for other ranks go first, and the shared expert works meanwhile. Where none leave, work that needs nothing
  // of one another is handed in together.
  const bool is_together = !dispatcher.sends_rows(), has_shared = w.shared_down != nullptr;
  const bool needs_look = !plan_.is_sliced && (!dispatcher.plans_on_device() || step.tap != nullptr || step.routing != nullptr);
  const RouterTopkArgs choice = choice_args(batch, w);
  {
    const SpanChain chain;
    multiply_gates(step, w, {.is_router = !plan_.is_sliced, .are_shared = has_shared && is_together});
    if (needs_look) router_topk(step.products.stream(), choice);
  }
  if (needs_look) look_at_choice(step, layer_idx);
  const Activations shared = has_shared && is_together ? shared_activations(step) : Activations{};
  const int64_t first = batch.first_row * plan_.top_k;
  const auto count = static_cast<std::size_t>(batch.num_tokens * plan_.top_k);
  DispatchHandle routed = dispatcher.dispatch({.layer = layer_idx,
                                               .tokens = dispatcher.row_dtype() == DType::kI8 ? x.codes : MatmulRows{x.values},
                                               .topk_idx = {topk_idx_.host() + first, count},
                                               .topk_weights = {topk_weights_.host() + first, count},
                                               .slot_weights = topk_weights_.device() + first,
                                               .slot_experts = topk_idx_.device() + first,
                                               .choice = plan_.is_sliced || needs_look ? nullptr : &choice,
                                               .top_k = plan_.top_k,
                                               .micro_batch = batch.number});
  if (!has_shared) return routed;
  const SpanChain chain;
  if (!is_together) multiply_gates(step, w, {.are_shared = true});
  step.products.linear(Zone::kSharedDown, is_together ? shared : shared_activations(step), *w.shared_down,
                       rows_of(shared_out_, batch));
  return routed;
}

/// Which experts each token goes to, and how much they count.
RouterTopkArgs MixtureOfExperts::choice_args(const MicroBatch& batch, const MoeWeights& w) {
  if (plan_.is_sliced) return {};
  const int64_t first = batch.first_row * plan_.top_k;
  return {.logits = rows_of(router_logits_, batch),
          .top_k = plan_.top_k,
          .is_sigmoid = plan_.router.score == RouterScore::kSigmoid,
          .bias = w.bias.empty() ? nullptr : w.bias.data(),
          .is_normalised = plan_.router.is_normalised,
          .sum_eps = plan_.router.sum_eps,
          .scale = plan_.router.scale,
          .topk_idx = topk_idx_.device() + first,
          .topk_weights = topk_weights_.device() + first};
}

/// Brings the choice to the host, which sends the rows there, or tells a tap; a hook may change it.
void MixtureOfExperts::look_at_choice(const BlockStep& step, int64_t layer_idx) {
  const int64_t first = step.batch.first_row * plan_.top_k, count = step.batch.num_tokens * plan_.top_k;
  topk_idx_.ask(first, count);
  step.products.stream().wait(topk_weights_.fetch(first, count));
  const std::span<int32_t> ids(topk_idx_.host() + first, static_cast<std::size_t>(count));
  if (step.routing != nullptr && step.routing->routed(layer_idx, step.batch.first_row, ids)) topk_idx_.send(first, count);
  if (step.tap != nullptr) step.tap->routing(layer_idx, ids, {topk_weights_.host() + first, static_cast<std::size_t>(count)});
}

/// The shared expert's gates: those within it, and the one of its result; and the router's logits.
void MixtureOfExperts::multiply_gates(const BlockStep& step, const MoeWeights& w, Gates which) {
  std::array<Linear, 3> gates;
  std::size_t count = 0;
  if (which.are_shared) {
    gates[count++] = {Zone::kSharedGateUp, w.shared_gate_up.get(), rows_of(shared_activated_, step.batch)};
    gates[count++] = {Zone::kSharedGate, w.shared_expert_gate.get(), rows_of(shared_gate_, step.batch)};
  }
  if (which.is_router) gates[count++] = {Zone::kRouter, w.router.get(), rows_of(router_logits_, step.batch)};
  step.products.linears(step.normed, std::span(gates).first(count));
}

Activations MixtureOfExperts::shared_activations(const BlockStep& step) {
  return step.products.activations(rows_of(shared_activated_, step.batch), shared_codes_, step.batch, is_shared_quantized_);
}

std::optional<ExpertSumArgs> MixtureOfExperts::finish(const BlockStep& step, const MoeWeights& w, DispatchHandle routed,
                                                      TokenDispatcher& dispatcher, MatrixView out) {
  SharedExpertMergeArgs merge{};
  if (w.shared_down != nullptr) {
    merge = {.routed = out, .shared = rows_of(shared_out_, step.batch), .gate = rows_of(shared_gate_, step.batch), .out = out};
  }
  if (const std::optional<CombineArgs> combine = dispatcher.take_combine(routed, out))
    return ExpertSumArgs{.combine = *combine, .merge = merge};
  dispatcher.combine(std::move(routed), out);
  if (w.shared_down != nullptr) shared_expert_merge(step.products.stream(), merge);
  return {};
}

void MixtureOfExperts::describe(const ModelConfig& config, OperatorList& list) {
  const MoePlan& p = config.moe;
  const int64_t hidden = config.hidden_dim, width = p.intermediate_dim, shared = p.shared_intermediate_dim;
  const double act = list.activation_bytes();
  const Quantization& q = list.quantization();
  if (!p.is_sliced) describe_router(p, hidden, list);
  for (const Zone zone : {Zone::kInitRouting, Zone::kDispatch}) {  // a token goes out once for all of its rows: no cost is told
    list.add({.zone = zone,
              .inputs = {list.activation({OperatorList::kRows, hidden})},
              .outputs = {list.activation({OperatorList::kRows, hidden})}});
  }
  list.rows_per_token(p.top_k);
  list.elementwise(Zone::kPermute, hidden, 0, 1);
  list.grouped_product(Zone::kGroupedGateUp, hidden, 2 * width, width, q.experts);
  list.quantize(Zone::kExpertQuantize, width);
  list.grouped_product(Zone::kGroupedDown, width, hidden, hidden, q.experts);
  list.rows_per_token(1);
  list.add({.zone = Zone::kCombine,  // b slots become rows
            .flop = {.per_b = 2 * as_double(hidden)},
            .bytes = {.per_row = as_double(hidden) * act, .per_b = as_double(hidden) * act},
            .inputs = {list.activation({OperatorList::kB, hidden})},
            .outputs = {list.activation({OperatorList::kRows, hidden})}});
  if (shared == 0) return;
  list.gated_product(Zone::kSharedGateUp, hidden, shared, q.shared);
  list.product(Zone::kSharedDown, shared, hidden, q.shared);
  list.product(Zone::kSharedGate, hidden, 1);
  list.elementwise(Zone::kSharedMerge, hidden, 2, 2);
}

}  // namespace ferry
