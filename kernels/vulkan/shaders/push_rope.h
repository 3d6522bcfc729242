#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Push constants of rotary embeddings.

PUSH_BEGIN

struct RopePush {
  uint64_t x, cos, sin;  // fp32 angles [rows, half_dim]
  uint x_stride;         // elements
  uint rows, num_heads, head_dim;
  uint half_dim;  // elements of a head that are rotated, halved
};

PUSH_END
