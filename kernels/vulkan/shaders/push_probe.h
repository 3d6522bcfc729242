#pragma once

#include "kernels/vulkan/shaders/push_types.h"

PUSH_BEGIN

struct ReadStreamPush {
  uint64_t from;   // [num_units] of 16 bytes
  uint64_t total;  // of all words read, modulo 2^32, is added there
  uint num_units;
};

PUSH_END
