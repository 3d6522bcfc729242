#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kMaxExperts = 4096;  // 16 KiB of probabilities on a task's stack
constexpr float kTaken = -INFINITY;    // below every choice: padding, and experts already chosen

/// Widens the logits; a NaN becomes -infinity. Returns the largest.
template <class T>
float read_logits(const T* logits, int64_t num_experts, float* values) {
  F32x16 largest(-INFINITY);
  for_each_vector(num_experts, [&](int64_t i, auto lanes) {
    const F32x16 x = load(logits + i, lanes);
    const F32x16 valid = select(x == x, x, F32x16(-INFINITY));
    store(values + i, valid, lanes);
    // The unused lanes of a tail hold zeros, which are not logits.
    if constexpr (std::is_same_v<decltype(lanes), AllLanes>) largest = max(largest, valid);
  });
  float result = horizontal_max(largest);
  for (int64_t i = num_experts / kLanes * kLanes; i < num_experts; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

/// values <- softmax(values). Logits equal to the largest have e^0 = 1 even where they are
/// infinite, so the result never holds a NaN.
void softmax(float* values, int64_t num_experts, float largest) {
  F32x16 sum(0.0f);
  for_each_vector(num_experts, [&](int64_t i, auto lanes) {
    const F32x16 x = load(values + i, lanes);
    const F32x16 e = select(x == F32x16(largest), F32x16(1.0f), exp(x - largest));
    store(values + i, e, lanes);
    sum = sum + load(values + i, lanes);  // zeros in the unused lanes
  });
  const float total = horizontal_sum(sum);
  for_each_vector(num_experts, [&](int64_t i, auto lanes) { store(values + i, load(values + i, lanes) / total, lanes); });
}

/// values <- T(sigmoid(values))
template <class T>
void sigmoids(float* values, int64_t num_experts) {
  for_each_vector(num_experts,
                  [&](int64_t i, auto lanes) { store(values + i, rounded<T>(sigmoid(load(values + i, lanes))), lanes); });
}

/// Index of the largest value, the lowest one on ties. `padded_size` is a multiple of 16.
int32_t index_of_largest(const float* values, int64_t padded_size) {
  I32x16 index;
  for (int i = 0; i < kParts; ++i) {
    for (int lane = 0; lane < kRegisterLanes; ++lane) index.part[i][lane] = i * kRegisterLanes + lane;
  }
  F32x16 best = load(values);
  I32x16 best_index = index;
  for (int64_t i = kLanes; i < padded_size; i += kLanes) {
    index = index + I32x16(static_cast<int32_t>(kLanes));
    const F32x16 x = load(values + i);
    const I32x16 larger = x > best;
    best = select(larger, x, best);
    best_index = select(larger, index, best_index);
  }
  float lane_values[kLanes];
  int32_t lane_indices[kLanes];
  __builtin_memcpy(lane_values, &best, sizeof(lane_values));
  __builtin_memcpy(lane_indices, &best_index, sizeof(lane_indices));
  int64_t winner = 0;
  for (int64_t lane = 1; lane < kLanes; ++lane) {
    const bool tie = lane_values[lane] == lane_values[winner];
    if (lane_values[lane] > lane_values[winner] || (tie && lane_indices[lane] < lane_indices[winner])) winner = lane;
  }
  return lane_indices[winner];
}

template <class T>
void route_token(const RouterTopkArgs& args, const T* logits, int32_t* topk_idx, float* topk_weights) {
  const int64_t num_experts = args.logits.cols, padded_size = (num_experts + kLanes - 1) / kLanes * kLanes;
  alignas(64) float scores[kMaxExperts];
  alignas(64) float biased[kMaxExperts];  // what experts are chosen by, where that is not their score
  const float largest = read_logits(logits, num_experts, scores);
  if (args.is_sigmoid) {
    sigmoids<T>(scores, num_experts);
  } else {
    softmax(scores, num_experts, largest);
  }
  float* choice = scores;
  if (args.bias.raw() != nullptr) {
    choice = biased;
    for (int64_t e = 0; e < num_experts; ++e) biased[e] = scores[e] + args.bias.raw()[e];
  }
  for (int64_t e = num_experts; e < padded_size; ++e) choice[e] = kTaken;
  float sum = args.sum_eps;
  for (int64_t k = 0; k < args.top_k; ++k) {
    const int32_t expert = index_of_largest(choice, padded_size);
    topk_idx[k] = expert;
    topk_weights[k] = scores[expert];
    sum += scores[expert];
    choice[expert] = kTaken;
  }
  for (int64_t k = 0; k < args.top_k; ++k) {
    const float weight = args.is_normalised ? topk_weights[k] / sum : topk_weights[k];
    topk_weights[k] = rounded<T>(weight * args.scale);
  }
}

}  // namespace

void router_topk(ThreadPool& pool, const RouterTopkArgs& args) {
  const int64_t num_experts = args.logits.cols;
  FERRY_CHECK_LE(num_experts, kMaxExperts);
  FERRY_CHECK_GE(args.top_k, 1);
  FERRY_CHECK_LE(args.top_k, num_experts);
  visit_dtype(args.logits.dtype, [&]<class T>() {
    parallel_rows(pool, args.logits.rows, num_experts * (args.top_k + 4), [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        route_token(args, row_of<T>(args.logits, r), args.topk_idx.raw() + r * args.top_k,
                    args.topk_weights.raw() + r * args.top_k);
      }
    });
  });
}

void delta_gates(ThreadPool& pool, const DeltaGatesArgs& args) {
  check_same_shape(args.a, args.b);
  constexpr float kSoftplusThreshold = 20.0f;
  constexpr int64_t kCost = 64;  // three scalar library calls an element, beside one element of a plain sum
  const int64_t num_heads = args.a.cols;
  visit_dtype(args.a.dtype, [&]<class T>() {
    parallel_rows(pool, args.a.rows, num_heads * kCost, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        for (int64_t h = 0; h < num_heads; ++h) {
          const float x = widen(row_of<T>(args.a, r)[h]) + args.dt_bias.raw()[h];
          const float softplus = x > kSoftplusThreshold ? x : log1pf(expf(x));
          args.decay.raw()[r * num_heads + h] = -expf(args.a_log.raw()[h]) * softplus;
          args.beta.raw()[r * num_heads + h] = rounded<T>(1.0f / (1.0f + expf(-widen(row_of<T>(args.b, r)[h]))));
        }
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
