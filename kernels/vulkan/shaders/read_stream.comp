#version 460
// Reads a stream once: what memory can do at best. An invocation takes kUnitsEach units of 16 bytes, a workgroup's width apart.
#extension GL_KHR_memory_scope_semantics : require
#include "common.glsl"
#include "push_probe.h"

layout(constant_id = 1) const uint kUnitsEach = 8;
layout(push_constant, scalar) uniform Push { ReadStreamPush p; };

void main() {
  uint first = gl_WorkGroupID.x * kUnitsEach * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  uvec4 sum = uvec4(0);
  for (uint i = 0; i < kUnitsEach; ++i) {
    uint unit = first + i * gl_WorkGroupSize.x;
    if (unit < p.num_units) sum += U32x4(p.from + uint64_t(unit) * 16).v[0];
  }
  // Reads must have a use; a stream of zeros adds nothing, so that there the atomics take no time.
  uint total = subgroupAdd(sum.x + sum.y + sum.z + sum.w);
  if (subgroupElect() && total != 0u) {
    // Within the queue's family: a wider scope would need a feature of the device.
    atomicAdd(U32(p.total).v[0], total, gl_ScopeQueueFamily, 0, gl_SemanticsRelaxed);
  }
}
