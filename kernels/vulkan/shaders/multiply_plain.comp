#version 460
// Multiplies and adds in registers, without matrix units, again and again: what they can do at best. An invocation has kChains
// sums, which begin with 1, 2, ...: of f32, by fused multiply-adds; of int8, by packed dot products of each sum's own bytes.
// Every round takes what the last one made, so that none can be left out.
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_integer_dot_product : require
#include "common.glsl"
#include "push_probe.h"

layout(constant_id = 1) const uint kChains = 16;
layout(push_constant, scalar) uniform Push { MultiplyPush p; };

#ifdef W_INT8
#define SUM int
int next_sum(int sum) { return sum + dotPacked4x8EXT(int(p.factor), sum); }
uint bits_of(int sum) { return uint(sum); }
#else
#define SUM float
float next_sum(float sum) { return fma(sum, float(p.factor), float(p.factor)); }
uint bits_of(float sum) { return floatBitsToUint(sum); }
#endif

void main() {
  SUM sums[kChains];
  [[unroll]] for (uint i = 0; i < kChains; ++i) sums[i] = SUM(i + 1);
  for (uint round = 0; round < p.num_rounds; ++round) {
    [[unroll]] for (uint i = 0; i < kChains; ++i) sums[i] = next_sum(sums[i]);
  }
  uint bits = 0;
  [[unroll]] for (uint i = 0; i < kChains; ++i) bits ^= bits_of(sums[i]);
  uint num_right = subgroupAdd(bits == p.expected ? kChains : 0);
  if (subgroupElect()) {
    // Within the queue's family: a wider scope would need a feature of the device.
    atomicAdd(U32(p.num_right).v[0], num_right, gl_ScopeQueueFamily, 0, gl_SemanticsRelaxed);
  }
}
