#version 460
// Second half of expert_rows for many slots: a workgroup an expert, which goes through all slots in order and places its own.
#include "kernels/vulkan/shaders/common.glsl"
#include "kernels/vulkan/shaders/push_rows.h"

layout(push_constant, scalar) uniform Push { ExpertRowsPush p; };

#include "kernels/vulkan/shaders/expert_rows.glsl"

shared uint found[128];  // [subgroups], at most 1024 / 8

void main() {
  uint expert = gl_WorkGroupID.x, row = uint(I32(p.first_rows).v[expert]), first_row = row;
  uint count = uint(I32(p.counts).v[expert]);
  for (uint first = 0; first < p.num_slots; first += gl_WorkGroupSize.x) {
    uint slot = first + gl_LocalInvocationID.x;
    uint is_mine = slot < p.num_slots && uint(I32(p.topk_idx).v[slot]) == expert ? 1 : 0;
    uint before = subgroupExclusiveAdd(is_mine), in_subgroup = subgroupAdd(is_mine);
    if (subgroupElect()) found[gl_SubgroupID] = in_subgroup;
    barrier();
    uint all = 0;
    for (uint i = 0; i < gl_NumSubgroups; ++i) {
      if (i < gl_SubgroupID) before += found[i];
      all += found[i];
    }
    if (is_mine != 0) place(slot, row + before, expert, first_row, count);
    row += all;
    barrier();
  }
}
