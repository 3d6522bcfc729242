#version 460
// Stages that read what all workgroups wrote in the stage before, and weights: to measure what it costs that they wait for one
// another (tests/bench/vulkan_barrier_bench). They wait for barriers, or themselves until a counter says that all are done.
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#include "common.glsl"
#include "push_chain.h"

layout(constant_id = 1) const uint kUnitsEach = 0;   // of 16 bytes of weights that an invocation reads
layout(constant_id = 2) const uint kWaits = 0;       // whether workgroups wait themselves
layout(constant_id = 3) const uint kReadsFirst = 0;  // whether weights are read before that
layout(push_constant, scalar) uniform Push { ChainStagePush p; };

layout(buffer_reference, scalar, buffer_reference_align = 4) nonprivate buffer Shared { uint v[]; };

const uint kMostPolls = 1u << 20;
const int kBuffers = gl_StorageSemanticsBuffer;

void meet_workgroup() {
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, kBuffers,
                 gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
}

bool are_done(Shared counter, uint target) {
  uint done = atomicLoad(counter.v[0], gl_ScopeQueueFamily, kBuffers, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
  return int(done - target) >= 0;
}

void wait_for(uint target) {
  if (gl_LocalInvocationID.x == 0) {
    Shared counter = Shared(p.counter);
    uint polls = 0;
    while (!are_done(counter, target) && polls < kMostPolls) ++polls;
    if (polls == kMostPolls) atomicAdd(counter.v[1], 1, gl_ScopeQueueFamily, 0, gl_SemanticsRelaxed);
  }
  meet_workgroup();
}

void count_workgroup() {
  meet_workgroup();
  if (gl_LocalInvocationID.x == 0) {
    atomicAdd(Shared(p.counter).v[0], 1, gl_ScopeQueueFamily, kBuffers, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
  }
}

uint weights_sum() {
  uint sum = 0, first = gl_WorkGroupID.x * kUnitsEach * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  [[unroll]] for (uint i = 0; i < kUnitsEach; ++i) {
    uvec4 unit = U32x4(p.weights + uint64_t(first + i * gl_WorkGroupSize.x) * 16).v[0];
    sum += unit.x + unit.y + unit.z + unit.w;
  }
  return sum;
}

void run_stage(uint64_t from, uint64_t to, uint sum) {
  uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x, count = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  uint other = (i * 5 + 12345) % count;
  Shared(to).v[i] = Shared(from).v[other] * 1664525 + 1013904223 + sum;
}

void main() {
  for (uint s = 0; s < p.num_stages; ++s) {
    uint sum = kReadsFirst != 0 ? weights_sum() : 0;
    if (kWaits != 0) wait_for(p.done_before + s * gl_NumWorkGroups.x);
    if (kReadsFirst == 0) sum = weights_sum();
    run_stage(s % 2 == 0 ? p.from : p.to, s % 2 == 0 ? p.to : p.from, sum);
    if (kWaits != 0) count_workgroup();
  }
}
