#version 460
// choose_experts of ops.h for few tokens, one workgroup: a team of subgroups chooses for every kTeams-th token, then an
// invocation places each slot.
#extension GL_KHR_memory_scope_semantics : require
#include "kernels/vulkan/shaders/common.glsl"
#include "kernels/vulkan/shaders/push_router.h"

layout(push_constant, scalar) uniform Push { ExpertChoicePush p; };

#include "kernels/vulkan/shaders/expert_rows.glsl"
#include "kernels/vulkan/shaders/expert_lists.glsl"

void note_choice(uint slot, uint expert) {
  experts[slot] = expert;
  count_row(expert);
}

#include "kernels/vulkan/shaders/router_choice.glsl"

void main() {
  uint totals[kLaneTotals];
  load_totals(totals);
  clear_counts();
  for (uint first = 0; first < p.num_tokens; first += kTeams) {
    uint token = first + gl_SubgroupID / kTeam;
    weigh_experts(logits_of(min(token, p.num_tokens - 1)));
    if (token < p.num_tokens && gl_SubgroupID % kTeam == 0) choose_experts(token);
  }
  find_first_rows();
  store_counts(totals);
  place_slots(p.num_tokens * p.top_k);
}
