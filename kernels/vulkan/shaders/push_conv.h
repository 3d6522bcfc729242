#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Of causal_conv1d. Strides count elements.

PUSH_BEGIN

const uint kConvInvocations = 128;  // a channel each
const uint kConvTokens = 8;         // of a workgroup

struct ConvSequence {
  uint64_t state;  // T [kernel - 1, channels]
  uint64_t held;   // T [num_replayed, channels]
  uint first_row, num_tokens;
  uint num_replayed, num_taken;  // rows of the latter are the span's own
};

// Tokens [first_token, first_token + kConvTokens) of a sequence, of its rows in the call. A sequence that has no more than
// these changes its state at once; else that is the work of a second dispatch.
struct ConvTask {
  uint sequence, first_token;
};

struct ConvPush {
  uint64_t x, weight, result;
  uint64_t sequences;  // ConvSequence[]
  uint64_t tasks;      // ConvTask[num_tasks]
  uint x_stride, result_stride;
  uint channels, num_tasks;
};

PUSH_END
