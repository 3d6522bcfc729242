// The experts of a token by their choice values, the largest first, one after the other: each invocation of a subgroup knows
// the best of every gl_SubgroupSize-th expert, and who gave the winner looks for its next.

#include "push_router.h"

layout(constant_id = 1) const uint kMaxExperts = 512;

shared uint keys[kMaxExperts];  // order_key() of the choice values, 0 for experts that are chosen
shared uint chosen[kMaxChosenExperts];

// Has the order of the numbers and is never 0; a NaN comes last.
uint order_key(float x) {
  if (is_nan(x)) return 1;
  uint bits = floatBitsToUint(x == 0.0 ? 0.0 : x);  // both zeros are one
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The best of the invocation's experts that are not chosen, the lower id of equal ones.
void find_best(uint num_experts, out uint best, out uint best_key) {
  best = 0;
  best_key = 0;
  for (uint e = gl_SubgroupInvocationID; e < num_experts; e += gl_SubgroupSize) {
    if (keys[e] > best_key) {
      best = e;
      best_key = keys[e];
    }
  }
}

// Fills chosen[0, top_k), as one subgroup.
void choose_experts(uint num_experts, uint top_k) {
  uint best, best_key;
  find_best(num_experts, best, best_key);
  for (uint k = 0; k < top_k; ++k) {
    uint key = subgroupMax(best_key);
    uint winner = subgroupMin(best_key == key ? best : 0xffffffffu);
    if (best_key == key && best == winner) {
      chosen[k] = winner;
      keys[winner] = 0;
      find_best(num_experts, best, best_key);
    }
  }
  subgroupBarrier();
}
