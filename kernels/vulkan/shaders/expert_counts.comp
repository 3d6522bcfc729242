#version 460
// expert_rows of ops.h, one workgroup: the rows of each expert, and where they begin. Of few slots it places the rows as well, an
// invocation a slot: a row comes behind those of the expert's earlier slots.
#include "kernels/vulkan/shaders/expert_rows.glsl"

layout(constant_id = 1) const uint kPlaces = 0;  // whether there is an invocation for every slot, which places it

const uint kMaxPlaced = 1024;

shared uint counts[kMaxExperts];
shared uint first_rows[kMaxExperts];
shared uint experts[kMaxPlaced];  // of the slots

void count_rows() {
  for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) counts[e] = 0;
  barrier();
  for (uint slot = gl_LocalInvocationID.x; slot < p.num_slots; slot += gl_WorkGroupSize.x) {
    uint expert = expert_of(slot);
    if (kPlaces != 0) experts[slot] = expert;
    atomicAdd(counts[expert], 1);
  }
  barrier();
}

// By the first subgroup, as many experts at once as it has invocations.
void find_first_rows() {
  if (gl_SubgroupID == 0) {
    uint before = 0;
    for (uint first = 0; first < p.num_experts; first += gl_SubgroupSize) {
      uint e = first + gl_SubgroupInvocationID, count = e < p.num_experts ? counts[e] : 0;
      uint begin = before + subgroupExclusiveAdd(count);
      if (e < p.num_experts) first_rows[e] = begin;
      before = subgroupMax(begin + count);
    }
  }
  barrier();
}

void main() {
  count_rows();
  find_first_rows();
  for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) {
    I32(p.counts).v[e] = int(counts[e]);
    I32(p.first_rows).v[e] = int(first_rows[e]);
    U32(p.row_totals).v[e] += counts[e];
  }
  uint slot = gl_LocalInvocationID.x;
  if (kPlaces == 0 || slot >= p.num_slots) return;
  uint row = first_rows[experts[slot]];
  for (uint i = 0; i < slot; ++i) row += experts[i] == experts[slot] ? 1 : 0;
  place(slot, row);
}
