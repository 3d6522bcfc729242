// The invocations that share a row: a workgroup, or a subgroup where rows are short, which needs no barrier for its sums. With
// HALF_PACKS it is a workgroup of twice as many, each with half a pack.

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

#ifdef HALF_PACKS
shared float pair_sums[gl_WorkGroupSize.x / 2];

// To every invocation, from what pairs have: as workgroup_sum() has it of the workgroup that would have whole packs. All
// invocations of the workgroup call it.
float team_sum(float x) {
  uint i = gl_LocalInvocationID.x;
  if (i % 2 == 0) pair_sums[i / 2] = x;
  barrier();
  if (i < gl_WorkGroupSize.x / 2) {
    float part = subgroupAdd(pair_sums[i]);
    if (subgroupElect()) reduce_parts[gl_SubgroupID] = part;
  }
  barrier();
  float sum = 0.0;
  for (uint j = 0; j < gl_NumSubgroups / 2; ++j) sum += reduce_parts[j];
  return sum;
}
#else
// To every invocation. All invocations of the team call it.
float team_sum(float x) { return kTeamIsSubgroup != 0 ? subgroupAdd(x) : workgroup_sum(x); }
#endif
