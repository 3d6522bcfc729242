#include <algorithm>
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

/// The rows of one value head, one after another, on `state` [k_dim, v_dim].
template <class T>
class HeadRun {
 public:
  HeadRun(const GatedDeltaRuleArgs& args, int64_t v_head, float* state)
      : args_(args), v_head_(v_head), k_head_(v_head / (args.num_v_heads / args.num_k_heads)), state_(state) {}

  /// `qkv` is the row; `decay` and `beta` have a value for every head; `out` [v_dim].
  void take(const T* qkv, const float* decay, const float* beta, T* out) {
    const int64_t key_width = args_.num_k_heads * args_.k_dim;
    const float q_scale = 1.0f / std::sqrt(static_cast<float>(args_.k_dim));
    const std::vector<float> q = l2_normalised(qkv + k_head_ * args_.k_dim, args_.k_dim, q_scale);
    const std::vector<float> k = l2_normalised(qkv + key_width + k_head_ * args_.k_dim, args_.k_dim, 1.0f);
    const T* v = qkv + 2 * key_width + v_head_ * args_.v_dim;
    step(q, k, v, decay[v_head_], beta[v_head_], args_.v_dim, state_, out);
  }

 private:
  const GatedDeltaRuleArgs& args_;
  int64_t v_head_, k_head_;
  float* state_;
};

template <class T>
void run_head(const GatedDeltaRuleArgs& args, std::size_t sequence_idx, int64_t v_head) {
  const SequenceSpan& span = args.sequences[sequence_idx];
  float* stored = args.states[sequence_idx] + v_head * args.k_dim * args.v_dim;
  std::vector<float> state(stored, stored + args.k_dim * args.v_dim);
  HeadRun<T> head(args, v_head, state.data());
  std::vector<T> ignored(static_cast<std::size_t>(args.v_dim));
  for (int64_t i = 0; i < span.num_replayed; ++i) {
    const HeldDeltaRows& held = args.held[sequence_idx];
    const int64_t gates = i * args.num_v_heads;
    head.take(reinterpret_cast<const T*>(held.qkv.raw()) + i * args.qkv.cols, held.decay.raw() + gates, held.beta.raw() + gates,
              ignored.data());
  }
  for (int64_t i = 0; i < span.num_tokens; ++i) {
    const int64_t row = span.first_row + i, gates = row * args.num_v_heads;
    head.take(args.qkv.row<T>(row), args.decay.raw() + gates, args.beta.raw() + gates,
              args.out.row<T>(row) + v_head * args.v_dim);
    if (i + 1 == span.num_taken()) std::copy(state.begin(), state.end(), stored);
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
