#version 460
// router_topk of ops.h: a subgroup a token.
#include "common.glsl"
#include "push_router.h"

layout(push_constant, scalar) uniform Push { RouterTopkPush p; };

void note_choice(uint slot, uint expert) {}

#include "router_choice.glsl"

void main() {
  uint row = workgroup_row() * gl_NumSubgroups + gl_SubgroupID;
  if (row >= p.rows) return;
  weigh_experts(logits_of(row));
  choose_experts(row);
}
