// What both shaders of expert_rows share.

#include "kernels/vulkan/shaders/common.glsl"
#include "kernels/vulkan/shaders/push_rows.h"

layout(push_constant, scalar) uniform Push { ExpertRowsPush p; };

const uint kMaxExperts = 1024;

uint expert_of(uint slot) { return uint(I32(p.topk_idx).v[slot]); }

void place(uint slot, uint row) {
  I32(p.row_token).v[row] = int(slot / p.top_k);
  I32(p.slot_row).v[slot] = int(row);
}
