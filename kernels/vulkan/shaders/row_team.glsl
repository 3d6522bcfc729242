// The invocations that share a row: a workgroup, or a subgroup where rows are short, which needs no barrier for its sums.

#include "pack.glsl"
#include "reduce.glsl"

layout(constant_id = 2) const uint kTeamIsSubgroup = 0;

uint team_row() { return kTeamIsSubgroup != 0 ? workgroup_row() * gl_NumSubgroups + gl_SubgroupID : workgroup_row(); }

// An invocation has the packs that begin at team_first(), and at every team_step() elements from there.
uint team_first() { return (kTeamIsSubgroup != 0 ? gl_SubgroupInvocationID : gl_LocalInvocationID.x) * kPack; }
uint team_step() { return (kTeamIsSubgroup != 0 ? gl_SubgroupSize : gl_WorkGroupSize.x) * kPack; }

// To every invocation. All invocations of the team call it.
float team_sum(float x) { return kTeamIsSubgroup != 0 ? subgroupAdd(x) : workgroup_sum(x); }
