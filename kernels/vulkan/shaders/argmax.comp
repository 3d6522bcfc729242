#version 460
// argmax of ops.h, its second half: a workgroup a row, from the best columns of its parts.
#include "common.glsl"
#include "best_column.glsl"
#include "push_argmax.h"

layout(push_constant, scalar) uniform Push { ArgmaxPush p; };

void main() {
  uint row = gl_WorkGroupID.y;
  uint64_t parts = p.parts + uint64_t(row) * p.num_parts * 8;
  Best best = no_best();
  for (uint i = gl_LocalInvocationID.x; i < p.num_parts; i += gl_WorkGroupSize.x) {
    U32 part = U32(parts + uint64_t(i) * 8);
    take_any(best, Best(part.v[0], part.v[1]));
  }
  best = workgroup_best(best);
  if (gl_LocalInvocationID.x == 0) I32(p.ids + uint64_t(I32(p.row_idx).v[row]) * 4).v[0] = int(best.id);
}
