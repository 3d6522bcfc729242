#pragma once

#include "kernels/vulkan/shaders/push_types.h"

PUSH_BEGIN

struct ChainStagePush {
  uint64_t from, to;  // uint [elements], one of each invocation of the grid; each stage has them in the other's place
  uint64_t weights;   // zeros, of 16 bytes, as many as the workgroups read
  uint64_t counter;   // of workgroups that are done, then of those that waited in vain
  uint done_before;   // workgroups that are done before the first stage begins
  uint num_stages;    // of this dispatch
};

PUSH_END
