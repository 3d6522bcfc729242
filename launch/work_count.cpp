#include "launch/work_count.h"

#include <algorithm>

namespace ferry {
namespace {

double d(int64_t value) { return static_cast<double>(value); }

Work matrices(double weights, const std::optional<WeightType>& type, DType dtype) {
  const double flops = 2 * weights;
  return {weights * bytes_per_weight(type, dtype), type ? 0 : flops, type ? flops : 0};
}

Work operator+(const Work& x, const Work& y) { return {x.bytes + y.bytes, x.flops + y.flops, x.code_flops + y.code_flops}; }

}  // namespace

WorkCount::WorkCount(const ModelConfig& c, const Quantization& q, DType dtype, Experts experts) {
  const GatedDeltaPlan& n = c.gated_delta;
  const AttentionPlan& a = c.attention;
  const double plain = d(dtype_bytes(dtype)), hidden = d(c.hidden_dim), layers = d(c.num_layers());
  const double linear = d(c.num_layers_of(Mixer::kGatedDelta)), full = d(c.num_layers_of(Mixer::kAttention));
  const double state = d(n.num_v_heads * n.k_dim * n.v_dim);

  const double delta_weights = hidden * d(n.conv_channels() + 2 * n.value_dim()), gate_weights = hidden * d(2 * n.num_v_heads);
  const double attention_weights = hidden * d(a.head_dim * (3 * a.num_heads + 2 * a.num_kv_heads));
  const double router_weights = hidden * d(c.moe.num_experts + 1);
  const double shared_weights = 3 * hidden * d(c.moe.shared_intermediate_dim);
  constexpr double kDeltaRuleFlops = 7;  // per element of the state: decay, S^T k, k delta^T, S^T q
  step_ = matrices(linear * delta_weights + full * attention_weights, q.mixers, dtype) +
          matrices(linear * gate_weights + layers * router_weights, std::nullopt, dtype) +
          matrices(layers * shared_weights, q.shared, dtype) + Work{.flops = linear * kDeltaRuleFlops * state};
  head_ = matrices(hidden * d(c.vocab_size), q.lm_head, dtype);
  if (experts == Experts::kHere) {
    const Work expert = matrices(3 * hidden * d(c.moe.intermediate_dim), q.experts, dtype);
    expert_bytes_ = expert.bytes;
    step_ = step_ + Work{.flops = expert.flops, .code_flops = expert.code_flops} * (layers * d(c.moe.top_k));
  }
  state_bytes_ = linear * 2 * (4 * state + plain * d(n.conv_channels() * (n.conv_kernel - 1)));
  kv_bytes_ = full * 2 * d(a.num_kv_heads * a.head_dim) * plain;
  key_flops_ = full * 4 * d(a.num_heads * a.head_dim);
}

/// Of a step with `tokens` rows that attend to `keys` keys each, without lm_head.
Work WorkCount::rows(double tokens, double keys) const {
  return {step_.bytes, tokens * (step_.flops + keys * key_flops_), tokens * step_.code_flops};
}

Work WorkCount::decode_step(int64_t batch, double past, double num_experts_read) const {
  const Work head{head_.bytes, d(batch) * head_.flops, d(batch) * head_.code_flops};
  return rows(d(batch), past) + head +
         Work{.bytes = num_experts_read * expert_bytes_ + d(batch) * (state_bytes_ + past * kv_bytes_)};
}

Work WorkCount::prompt(int64_t length, int64_t chunk, double num_experts_read) const {
  Work work = head_ + Work{.bytes = num_experts_read * expert_bytes_};
  for (int64_t first = 0; first < length; first += chunk) {
    const double tokens = d(std::min(chunk, length - first)), past = d(first);
    work = work + rows(tokens, past + (tokens + 1) / 2) + Work{.bytes = state_bytes_ + past * kv_bytes_};
  }
  return work;
}

}  // namespace ferry
