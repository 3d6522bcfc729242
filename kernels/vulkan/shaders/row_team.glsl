// The invocations that share a row: a workgroup, or a subgroup where rows are short, which needs no barrier for its sums.

#include "pack.glsl"
#include "reduce.glsl"

layout(constant_id = 2) const uint kTeamIsSubgroup = 0;
layout(constant_id = 3) const uint kRowPacks = 1;  // that an invocation has of a row

uint team_row() { return kTeamIsSubgroup != 0 ? workgroup_row() * gl_NumSubgroups + gl_SubgroupID : workgroup_row(); }

// Where the invocation's i-th pack begins.
uint team_pack(uint i) {
  if (kTeamIsSubgroup != 0) return (i * gl_SubgroupSize + gl_SubgroupInvocationID) * kPack;
  return (i * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * kPack;
}

// To every invocation. All invocations of the team call it.
float team_sum(float x) { return kTeamIsSubgroup != 0 ? subgroupAdd(x) : workgroup_sum(x); }
