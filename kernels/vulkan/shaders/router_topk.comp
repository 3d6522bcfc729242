#version 460
// router_topk of ops.h: a workgroup a token. All of it weighs the experts, then its first subgroup chooses.
#include "common.glsl"
#include "exponential.glsl"
#include "expert_choice.glsl"
#include "push_router.h"
#include "reduce.glsl"

layout(push_constant, scalar) uniform Push { RouterTopkPush p; };

shared float chosen_values[kMaxChosenExperts];

float minus_infinity() { return uintBitsToFloat(0xff800000u); }

// A NaN counts as -infinity.
float logit(uint64_t row, uint expert) {
  float x = load_t(row, expert);
  return is_nan(x) ? minus_infinity() : x;
}

// e^0 also where the largest is infinite.
float softmax_term(float x, float largest) { return x == largest ? 1.0 : accurate_exp(x - largest); }

float probability(float x, float largest, float total) {
  return p.is_sigmoid != 0 ? round_t(accurate_sigmoid(x)) : quotient(softmax_term(x, largest), total);
}

void main() {
  uint row = workgroup_row();
  if (row >= p.rows) return;
  uint64_t logits = p.logits + uint64_t(row) * p.logits_stride * kBytesOfT;
  float largest = minus_infinity(), total = 0.0;
  if (p.is_sigmoid == 0) {
    for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) largest = max(largest, logit(logits, e));
    largest = workgroup_max(largest);
    for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) {
      total += softmax_term(logit(logits, e), largest);
    }
    total = workgroup_sum(total);
  }
  for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) {
    float choice = probability(logit(logits, e), largest, total);
    if (p.bias != 0) choice += F32(p.bias + uint64_t(e) * 4).v[0];
    keys[e] = order_key(choice);
  }
  barrier();
  if (gl_SubgroupID != 0) return;

  choose_experts(p.num_experts, p.top_k);
  for (uint k = gl_SubgroupInvocationID; k < p.top_k; k += gl_SubgroupSize) {
    I32(p.topk_idx + (uint64_t(row) * p.top_k + k) * 4).v[0] = int(chosen[k]);
    chosen_values[k] = probability(logit(logits, chosen[k]), largest, total);
  }
  subgroupBarrier();
  precise float sum = p.sum_eps;
  for (uint k = 0; k < p.top_k; ++k) sum += chosen_values[k];
  for (uint k = gl_SubgroupInvocationID; k < p.top_k; k += gl_SubgroupSize) {
    float weight = p.is_normalised != 0 ? quotient(chosen_values[k], sum) : chosen_values[k];
    F32(p.topk_weights + (uint64_t(row) * p.top_k + k) * 4).v[0] = round_t(weight * p.scale);
  }
}
