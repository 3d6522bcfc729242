// How the logits of a token become its experts and their weights, as router_topk of ops.h says: by one subgroup, of which each
// invocation has every gl_SubgroupSize-th expert. Behind a push block p with what RouterTopkPush has.

#include "exponential.glsl"
#include "order_key.glsl"
#include "push_router.h"

layout(constant_id = 1) const uint kMaxExperts = 512;
layout(constant_id = 2) const uint kSubgroupSize = 32;
const uint kLaneExperts = (kMaxExperts + kSubgroupSize - 1) / kSubgroupSize;

float minus_infinity() { return uintBitsToFloat(0xff800000u); }

// e^0 also where the largest is infinite.
float softmax_term(float x, float largest) { return x == largest ? 1.0 : accurate_exp(x - largest); }

const uint kNotChosen = 0xffffffffu;

// Of the invocation's experts.
float values[kLaneExperts];  // probabilities
uint keys[kLaneExperts];     // order_key() of the choice values, 0 for those that are chosen and for those that are not there
uint places[kLaneExperts];   // among those that are chosen

uint lane_expert(uint i) { return gl_SubgroupInvocationID + i * kSubgroupSize; }

// Logits of which a NaN counts as -infinity. All are on their way before one is looked at: a load behind a branch would wait.
void load_logits(uint64_t logits) {
  for (uint i = 0; i < kLaneExperts; ++i) values[i] = load_t(logits, min(lane_expert(i), p.num_experts - 1));
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (lane_expert(i) >= p.num_experts || is_nan(values[i])) values[i] = minus_infinity();
  }
}

void weigh_experts(uint64_t logits) {
  float largest = minus_infinity(), total = 0.0;
  load_logits(logits);
  if (p.is_sigmoid == 0) {
    for (uint i = 0; i < kLaneExperts; ++i) largest = max(largest, values[i]);
    largest = subgroupMax(largest);
    for (uint i = 0; i < kLaneExperts; ++i) {
      if (lane_expert(i) >= p.num_experts) continue;
      values[i] = softmax_term(values[i], largest);
      total += values[i];
    }
    total = subgroupAdd(total);
  }
  for (uint i = 0; i < kLaneExperts; ++i) {
    uint e = lane_expert(i);
    keys[i] = 0;
    places[i] = kNotChosen;
    if (e >= p.num_experts) continue;
    values[i] = p.is_sigmoid != 0 ? round_t(accurate_sigmoid(values[i])) : quotient(values[i], total);
    keys[i] = order_key(p.bias == 0 ? values[i] : values[i] + F32(p.bias).v[e]);
  }
}

// Takes the best expert that is left, the lower id of equal ones, as the one at `place`, and gives its probability to all
// invocations.
uint take_best(uint place, out float value) {
  uint best = kNotChosen, best_key = 0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (keys[i] <= best_key) continue;
    best = lane_expert(i);
    best_key = keys[i];
  }
  uint key = subgroupMax(best_key);
  uint winner = subgroupMin(best_key == key ? best : kNotChosen);
  float own = 0.0;
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (lane_expert(i) != winner) continue;
    own = values[i];
    keys[i] = 0;
    places[i] = place;
  }
  value = subgroupShuffle(own, winner % kSubgroupSize);
  return winner;
}

// The choice of row `row`.
void choose_experts(uint row) {
  weigh_experts(p.logits + uint64_t(row) * p.logits_stride * kBytesOfT);
  precise float sum = p.sum_eps;
  for (uint k = 0; k < p.top_k; ++k) {
    float value;
    uint winner = take_best(k, value);
    sum += value;
    if (gl_SubgroupInvocationID == 0) note_choice(row * p.top_k + k, winner);
  }
  for (uint i = 0; i < kLaneExperts; ++i) {
    if (places[i] == kNotChosen) continue;
    uint64_t place = (uint64_t(row) * p.top_k + places[i]) * 4;
    float weight = p.is_normalised != 0 ? quotient(values[i], sum) : values[i];
    I32(p.topk_idx + place).v[0] = int(lane_expert(i));
    F32(p.topk_weights + place).v[0] = round_t(weight * p.scale);
  }
}
