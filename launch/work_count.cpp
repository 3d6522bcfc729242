#include "launch/work_count.h"

#include <algorithm>
#include <cmath>

namespace ferry {
namespace {

double d(int64_t value) { return static_cast<double>(value); }

}  // namespace

WorkCount::WorkCount(const ModelConfig& c, const Quantization& q, DType dtype) : config_(c) {
  const DeltaNetConfig& n = c.deltanet;
  const AttentionConfig& a = c.attention;
  const double plain = d(dtype_bytes(dtype)), mixer = bytes_per_weight(q.mixers, dtype), hidden = d(c.hidden_dim);
  const double linear = d(c.num_layers_of(LayerKind::kLinearAttention)), full = d(c.num_layers_of(LayerKind::kFullAttention));
  const double layers = d(c.num_layers()), state = d(n.num_v_heads * n.k_dim * n.v_dim);

  const double delta_weights = hidden * d(n.conv_channels() + 2 * n.value_dim()), gate_weights = hidden * d(2 * n.num_v_heads);
  const double attention_weights = hidden * d(a.head_dim * (3 * a.num_heads + 2 * a.num_kv_heads));
  const double router_weights = hidden * d(c.moe.num_experts + 1);
  const double shared_weights = 3 * hidden * d(c.moe.shared_intermediate_dim);
  const double expert_weights = 3 * hidden * d(c.moe.intermediate_dim), head_weights = hidden * d(c.vocab_size);

  trunk_bytes_ = (linear * delta_weights + full * attention_weights) * mixer +
                 (linear * gate_weights + layers * router_weights) * plain +
                 layers * shared_weights * bytes_per_weight(q.shared, dtype);
  expert_bytes_ = expert_weights * bytes_per_weight(q.experts, dtype);
  head_bytes_ = head_weights * bytes_per_weight(q.lm_head, dtype);
  state_bytes_ = linear * 2 * (4 * state + plain * d(n.conv_channels() * (n.conv_kernel - 1)));
  kv_bytes_ = full * 2 * d(a.num_kv_heads * a.head_dim) * plain;
  constexpr double kDeltaRuleFlops = 7;  // per element of the state: decay, S^T k, k delta^T, S^T q
  trunk_flops_ = 2 * (linear * (delta_weights + gate_weights) + full * attention_weights +
                      layers * (router_weights + shared_weights + d(c.moe.top_k) * expert_weights)) +
                 linear * kDeltaRuleFlops * state;
  head_flops_ = 2 * head_weights;
}

/// Distinct experts of a layer that some token goes to.
double WorkCount::experts_hit(double tokens) const {
  const double experts = d(config_.moe.num_experts);
  return experts * (1.0 - std::pow(1.0 - d(config_.moe.top_k) / experts, tokens));
}

double WorkCount::layers_bytes(double tokens) const {
  return trunk_bytes_ + d(config_.num_layers()) * experts_hit(tokens) * expert_bytes_;
}

/// Of a token that attends to `keys` keys: 4 operations a key and element of the queries.
double WorkCount::token_flops(double keys) const {
  const AttentionConfig& a = config_.attention;
  return trunk_flops_ + d(config_.num_layers_of(LayerKind::kFullAttention)) * 4 * d(a.num_heads * a.head_dim) * keys;
}

WorkCount::Work WorkCount::decode_step(int64_t batch, double past) const {
  return {layers_bytes(d(batch)) + head_bytes_ + d(batch) * (state_bytes_ + past * kv_bytes_),
          d(batch) * (token_flops(past) + head_flops_)};
}

WorkCount::Work WorkCount::prompt(int64_t length, int64_t chunk) const {
  Work work{head_bytes_, head_flops_};
  for (int64_t first = 0; first < length; first += chunk) {
    const double tokens = d(std::min(chunk, length - first)), past = d(first);
    work.bytes += layers_bytes(tokens) + state_bytes_ + past * kv_bytes_;
    work.flops += tokens * token_flops(past + (tokens + 1) / 2);
  }
  return work;
}

}  // namespace ferry
