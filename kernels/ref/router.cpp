#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {
namespace {

/// Sigmoid in fp32, rounded to the logits' type. A NaN counts as -infinity.
template <class T>
std::vector<float> sigmoids(const T* logits, int64_t num_experts) {
  std::vector<float> values;
  for (int64_t i = 0; i < num_experts; ++i) {
    const float x = to_float(logits[i]);
    values.push_back(std::isnan(x) ? 0.0f : round_to<T>(sigmoid(x)));
  }
  return values;
}

/// Softmax in fp32. A NaN counts as -infinity; a logit equal to the largest has e^0 = 1 even where both are infinite.
template <class T>
std::vector<float> softmax(const T* logits, int64_t num_experts) {
  std::vector<float> values;
  for (int64_t i = 0; i < num_experts; ++i) {
    const float x = to_float(logits[i]);
    values.push_back(std::isnan(x) ? -std::numeric_limits<float>::infinity() : x);
  }
  const float largest = *std::max_element(values.begin(), values.end());
  float sum = 0.0f;
  for (float& x : values) {
    x = x == largest ? 1.0f : std::exp(x - largest);
    sum += x;
  }
  for (float& x : values) x /= sum;
  return values;
}

}  // namespace

void router_topk(ThreadPool&, const RouterTopkArgs& args) {
  const int64_t num_experts = args.logits.cols;
  FERRY_CHECK_GE(args.top_k, 1);
  FERRY_CHECK_LE(args.top_k, num_experts);
  visit_dtype(args.logits.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.logits.rows; ++r) {
      const T* logits = args.logits.row<T>(r);
      const std::vector<float> p = args.is_sigmoid ? sigmoids(logits, num_experts) : softmax(logits, num_experts);
      std::vector<float> choice = p;
      for (std::size_t e = 0; args.bias.raw() != nullptr && e < p.size(); ++e) choice[e] += args.bias.raw()[e];
      std::vector<std::size_t> order(p.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return choice[a] > choice[b]; });
      float sum = args.sum_eps;
      for (int64_t k = 0; k < args.top_k; ++k) sum += p[order[static_cast<std::size_t>(k)]];
      for (int64_t k = 0; k < args.top_k; ++k) {
        const std::size_t expert = order[static_cast<std::size_t>(k)];
        args.topk_idx.raw()[r * args.top_k + k] = static_cast<int32_t>(expert);
        const float weight = args.is_normalised ? p[expert] / sum : p[expert];
        args.topk_weights.raw()[r * args.top_k + k] = round_to<T>(weight * args.scale);
      }
    }
  });
}

void delta_gates(ThreadPool&, const DeltaGatesArgs& args) {
  check_same_shape(args.a, args.b);
  constexpr float kSoftplusThreshold = 20.0f;  // as in torch: above it softplus(x) is x
  const int64_t num_heads = args.a.cols;
  visit_dtype(args.a.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.a.rows; ++r) {
      for (int64_t h = 0; h < num_heads; ++h) {
        const float x = to_float(args.a.row<T>(r)[h]) + args.dt_bias.raw()[h];
        const float softplus = x > kSoftplusThreshold ? x : std::log1p(std::exp(x));
        args.decay.raw()[r * num_heads + h] = -std::exp(args.a_log.raw()[h]) * softplus;
        args.beta.raw()[r * num_heads + h] = round_to<T>(sigmoid(to_float(args.b.row<T>(r)[h])));
      }
    }
  });
}

}  // namespace ferry::ref
