#version 460
// argmax of ops.h, its first half: a workgroup a part of a row.
#include "common.glsl"
#include "best_column.glsl"
#include "pack.glsl"
#include "push_argmax.h"

layout(push_constant, scalar) uniform Push { ArgmaxPush p; };

void main() {
  uint row = gl_WorkGroupID.y, part = gl_WorkGroupID.x;
  uint64_t x = p.x + uint64_t(I32(p.row_idx).v[row]) * p.x_stride * kBytesOfT;
  uint first = part * p.part_cols, end = min(first + p.part_cols, p.cols);
  Best best = no_best();
  for (uint c = first + gl_LocalInvocationID.x * kPack; c < end; c += gl_WorkGroupSize.x * kPack) {
    Pack values = load_pack(x, c, end);
    [[unroll]] for (uint i = 0; i < kPack; ++i) {
      if (c + i < end) take_next(best, order_key(values.v[i]), c + i);
    }
  }
  best = workgroup_best(best);
  if (gl_LocalInvocationID.x != 0) return;
  U32 result = U32(p.parts + (uint64_t(row) * p.num_parts + part) * 8);
  result.v[0] = best.key;
  result.v[1] = best.id;
}
