#version 460
// Multiplies fragments in registers again and again: what matrix units can do at best. A subgroup has kLefts x kRights sums;
// left fragments are all 1, 2, ..., right ones likewise times the push's factor, so that every sum is a whole number.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_bfloat16 : enable
#include "common.glsl"
#include "push_probe.h"

layout(constant_id = 1) const uint kFragmentM = 16;
layout(constant_id = 2) const uint kFragmentN = 16;
layout(constant_id = 3) const uint kFragmentK = 16;
layout(constant_id = 4) const uint kSubgroupSize = 32;
layout(constant_id = 5) const uint kLefts = 4;
layout(constant_id = 6) const uint kRights = 4;
layout(push_constant, scalar) uniform Push { MultiplyPush p; };

#ifdef W_BF16
#define ELEMENT bfloat16_t
#define SUM float
#else
#define ELEMENT int8_t
#define SUM int
#endif
#define LEFT coopmat<ELEMENT, gl_ScopeSubgroup, kFragmentM, kFragmentK, gl_MatrixUseA>
#define RIGHT coopmat<ELEMENT, gl_ScopeSubgroup, kFragmentK, kFragmentN, gl_MatrixUseB>
#define SUMS coopmat<SUM, gl_ScopeSubgroup, kFragmentM, kFragmentN, gl_MatrixUseAccumulator>

const uint kSubgroups = (gl_WorkGroupSize.x + kSubgroupSize - 1) / kSubgroupSize;
const uint kFragmentSize = kFragmentM * kFragmentN;
shared SUM results[kSubgroups * kFragmentSize];

void main() {
  LEFT lefts[kLefts];
  RIGHT rights[kRights];
  SUMS sums[kLefts * kRights];
  [[unroll]] for (uint i = 0; i < kLefts; ++i) lefts[i] = LEFT(ELEMENT(float(i + 1)));
  [[unroll]] for (uint i = 0; i < kRights; ++i) rights[i] = RIGHT(ELEMENT(float((i + 1) * p.factor)));
  [[unroll]] for (uint i = 0; i < kLefts * kRights; ++i) sums[i] = SUMS(SUM(0));
  for (uint round = 0; round < p.num_rounds; ++round) {
    [[unroll]] for (uint i = 0; i < kLefts * kRights; ++i) {
      sums[i] = coopMatMulAdd(lefts[i / kRights], rights[i % kRights], sums[i]);
    }
  }
  uint first = gl_SubgroupID * kFragmentSize, num_right = 0;
  [[unroll]] for (uint i = 0; i < kLefts * kRights; ++i) {
    SUM expected = SUM(p.expected * (i / kRights + 1) * (i % kRights + 1));
    subgroupBarrier();
    coopMatStore(sums[i], results, first, kFragmentN, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[dont_unroll]] for (uint j = gl_SubgroupInvocationID; j < kFragmentSize; j += kSubgroupSize) {
      num_right += results[first + j] == expected ? 1 : 0;
    }
  }
  num_right = subgroupAdd(num_right);
  if (subgroupElect()) {
    // Within the queue's family: a wider scope would need a feature of the device.
    atomicAdd(U32(p.num_right).v[0], num_right, gl_ScopeQueueFamily, 0, gl_SemanticsRelaxed);
  }
}
