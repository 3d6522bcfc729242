#version 460
// expert_rows of ops.h, one workgroup: the rows of each expert, and where they begin. Of few slots it places the rows as well.
#extension GL_KHR_memory_scope_semantics : require
#include "kernels/vulkan/shaders/common.glsl"
#include "kernels/vulkan/shaders/push_rows.h"

layout(push_constant, scalar) uniform Push { ExpertRowsPush p; };

#include "kernels/vulkan/shaders/expert_rows.glsl"
#include "kernels/vulkan/shaders/expert_lists.glsl"

layout(constant_id = 1) const uint kPlaces = 0;  // whether there is an invocation for every slot, which places it

void main() {
  uint totals[kLaneTotals];
  load_totals(totals);
  clear_counts();
  for (uint slot = gl_LocalInvocationID.x; slot < p.num_slots; slot += gl_WorkGroupSize.x) {
    uint expert = uint(I32(p.topk_idx).v[slot]);
    if (kPlaces != 0) experts[slot] = expert;
    count_row(expert);
  }
  find_first_rows();
  store_counts(totals);
  for (uint e = gl_LocalInvocationID.x; e < p.num_experts; e += gl_WorkGroupSize.x) I32(p.first_rows).v[e] = int(first_rows[e]);
  if (kPlaces != 0) place_slots(p.num_slots);
}
