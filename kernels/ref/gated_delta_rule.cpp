#include <cmath>
#include <vector>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {
namespace {

/// x / sqrt(sum(x^2) + 1e-6) * scale, in fp32.
template <class T>
std::vector<float> l2_normalised(const T* x, int64_t dim, float scale) {
  constexpr float kEps = 1e-6f;  // modeling_qwen3_5_moe.py, l2norm
  float sum = 0.0f;
  for (int64_t i = 0; i < dim; ++i) sum += to_float(x[i]) * to_float(x[i]);
  const float inverse = 1.0f / std::sqrt(sum + kEps);
  std::vector<float> out;
  for (int64_t i = 0; i < dim; ++i) out.push_back(to_float(x[i]) * inverse * scale);
  return out;
}

/// One token of one value head: the recurrence of kernels/ops.h. `state` is [k_dim, v_dim].
template <class T>
void step(const std::vector<float>& q, const std::vector<float>& k, const T* v, float decay, float beta, int64_t v_dim,
          float* state, T* out) {
  const int64_t k_dim = static_cast<int64_t>(k.size());
  const float keep = std::exp(decay);
  for (int64_t i = 0; i < k_dim * v_dim; ++i) state[i] *= keep;
  for (int64_t j = 0; j < v_dim; ++j) {
    float predicted = 0.0f;
    for (int64_t i = 0; i < k_dim; ++i) predicted += state[i * v_dim + j] * k[static_cast<std::size_t>(i)];
    const float delta = beta * (to_float(v[j]) - predicted);
    float output = 0.0f;
    for (int64_t i = 0; i < k_dim; ++i) {
      state[i * v_dim + j] += k[static_cast<std::size_t>(i)] * delta;
      output += state[i * v_dim + j] * q[static_cast<std::size_t>(i)];
    }
    out[j] = from_float<T>(output);
  }
}

template <class T>
void run_head(const GatedDeltaRuleArgs& args, std::size_t sequence_idx, int64_t v_head) {
  const SequenceSpan& span = args.sequences[sequence_idx];
  const int64_t k_head = v_head / (args.num_v_heads / args.num_k_heads);
  const int64_t key_width = args.num_k_heads * args.k_dim;
  float* state = args.states[sequence_idx] + v_head * args.k_dim * args.v_dim;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(args.k_dim));
  for (int64_t t = span.first_row; t < span.first_row + span.num_tokens; ++t) {
    const T* row = args.qkv.row<T>(t);
    const std::vector<float> q = l2_normalised(row + k_head * args.k_dim, args.k_dim, q_scale);
    const std::vector<float> k = l2_normalised(row + key_width + k_head * args.k_dim, args.k_dim, 1.0f);
    const T* v = row + 2 * key_width + v_head * args.v_dim;
    const int64_t gate_idx = t * args.num_v_heads + v_head;
    step(q, k, v, args.decay[gate_idx], args.beta[gate_idx], args.v_dim, state, args.out.row<T>(t) + v_head * args.v_dim);
  }
}

}  // namespace

// Token by token whatever the length: `chunk` says how a faster implementation may cut the work and changes rounding only.
void gated_delta_rule(ThreadPool&, const GatedDeltaRuleArgs& args) {
  FERRY_CHECK_EQ(args.qkv.cols, 2 * args.num_k_heads * args.k_dim + args.num_v_heads * args.v_dim);
  FERRY_CHECK_EQ(args.out.cols, args.num_v_heads * args.v_dim);
  FERRY_CHECK_EQ(args.num_v_heads % args.num_k_heads, 0);
  FERRY_CHECK_EQ(args.states.size(), args.sequences.size());
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (std::size_t s = 0; s < args.sequences.size(); ++s) {
      for (int64_t head = 0; head < args.num_v_heads; ++head) run_head<T>(args, s, head);
    }
  });
}

}  // namespace ferry::ref
