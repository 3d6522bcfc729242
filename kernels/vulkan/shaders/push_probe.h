#pragma once

#include "kernels/vulkan/shaders/push_types.h"

PUSH_BEGIN

struct ReadStreamPush {
  uint64_t from;   // [num_units] of 16 bytes
  uint64_t total;  // of all words read, modulo 2^32, is added there
  uint num_units;
};

struct MultiplyPush {
  uint64_t num_right;  // sums that are what they must be are counted there, modulo 2^32
  uint num_rounds;
  uint factor;    // of every product; of packed dot products four of them
  uint expected;  // by matrices: of the first left and right fragment; without: an invocation's sums, their bits xored
};

PUSH_END
