// How the logits of a token become its experts and their weights, as router_topk of ops.h says: by one subgroup, of which each
// invocation has every gl_SubgroupSize-th expert. Behind a push block p with what RouterTopkPush has.

#include "exponential.glsl"
#include "order_key.glsl"
#include "push_router.h"

layout(constant_id = 1) const uint kMaxExperts = 512;
layout(constant_id = 2) const uint kSubgroupSize = 32;
const uint kLaneExperts = (kMaxExperts + kSubgroupSize - 1) / kSubgroupSize;

float minus_infinity() { return uintBitsToFloat(0xff800000u); }

// A NaN counts as -infinity.
float logit(uint64_t row, uint expert) {
  float x = load_t(row, expert);
  return is_nan(x) ? minus_infinity() : x;
}

// e^0 also where the largest is infinite.
float softmax_term(float x, float largest) { return x == largest ? 1.0 : accurate_exp(x - largest); }

// Of the invocation's experts.
float values[kLaneExperts];  // probabilities
uint keys[kLaneExperts];     // order_key() of the choice values, 0 for those that are chosen and for those that are not there

void weigh_experts(uint64_t logits) {
  float largest = minus_infinity(), total = 0.0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    uint e = gl_SubgroupInvocationID + i * kSubgroupSize;
    values[i] = e < p.num_experts ? logit(logits, e) : minus_infinity();
    largest = max(largest, values[i]);
  }
  if (p.is_sigmoid == 0) {
    largest = subgroupMax(largest);
    for (uint i = 0; i < kLaneExperts; ++i) {
      if (gl_SubgroupInvocationID + i * kSubgroupSize >= p.num_experts) continue;
      values[i] = softmax_term(values[i], largest);
      total += values[i];
    }
    total = subgroupAdd(total);
  }
  for (uint i = 0; i < kLaneExperts; ++i) {
    uint e = gl_SubgroupInvocationID + i * kSubgroupSize;
    keys[i] = 0;
    if (e >= p.num_experts) continue;
    values[i] = p.is_sigmoid != 0 ? round_t(accurate_sigmoid(values[i])) : quotient(values[i], total);
    keys[i] = order_key(p.bias == 0 ? values[i] : values[i] + F32(p.bias).v[e]);
  }
}

// Takes the best expert that is left, the lower id of equal ones, and gives its probability to all invocations.
uint take_best(out float value) {
  uint best = 0xffffffffu, best_key = 0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (keys[i] <= best_key) continue;
    best = gl_SubgroupInvocationID + i * kSubgroupSize;
    best_key = keys[i];
  }
  uint key = subgroupMax(best_key);
  uint winner = subgroupMin(best_key == key ? best : 0xffffffffu);
  float own = 0.0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (gl_SubgroupInvocationID + i * kSubgroupSize != winner) continue;
    own = values[i];
    keys[i] = 0;
  }
  value = subgroupMax(own);
  return winner;
}

// The choice of row `row`. Each place is written, and read again, by one invocation.
void choose_experts(uint row) {
  weigh_experts(p.logits + uint64_t(row) * p.logits_stride * kBytesOfT);
  uint64_t first = uint64_t(row) * p.top_k * 4;
  precise float sum = p.sum_eps;
  for (uint k = 0; k < p.top_k; ++k) {
    float value;
    uint winner = take_best(value);
    sum += value;
    if (k % kSubgroupSize != gl_SubgroupInvocationID) continue;
    I32(p.topk_idx + first).v[k] = int(winner);
    F32(p.topk_weights + first).v[k] = value;
    note_choice(row * p.top_k + k, winner);
  }
  for (uint k = gl_SubgroupInvocationID; k < p.top_k; k += kSubgroupSize) {
    float value = F32(p.topk_weights + first).v[k];
    float weight = p.is_normalised != 0 ? quotient(value, sum) : value;
    F32(p.topk_weights + first).v[k] = round_t(weight * p.scale);
  }
}
