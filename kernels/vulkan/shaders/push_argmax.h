#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Push constants of both halves of argmax.

PUSH_BEGIN

struct ArgmaxPush {
  uint64_t x;
  uint64_t row_idx;  // [num_rows] int32, rows of x
  uint64_t parts;    // [num_rows, num_parts] the best column of each part of a row, as a key and an id
  uint64_t ids;      // int32, of the rows of x
  uint x_stride;     // elements
  uint cols;
  uint part_cols, num_parts;
};

PUSH_END
