#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Push constants of norms. Strides count elements, weights and biases are fp32.

PUSH_BEGIN

struct RmsNormPush {
  uint64_t x, weight, result;
  uint x_stride, result_stride;
  uint rows, cols;
  float eps;
  uint rounds_first;  // whether x / rms is rounded to T before the weight
};

// A row's sum is at `residual`, if there is something to add: else `added` is 0. With slots (a specialisation constant) `added`
// has the experts' rows; without a shared expert `shared` is 0. Without codes, `codes` is 0.
struct ResidualNormPush {
  uint64_t residual, added, weight, result;
  uint64_t codes, scales;
  uint64_t slot_row, slot_weights;  // [rows, slots] int32 and fp32
  uint64_t shared_row, shared_gate;
  uint residual_stride, added_stride, result_stride, codes_stride, shared_stride, gate_stride;
  uint rows, cols, codes_cols;
  float eps;
};

struct GatedRmsNormPush {
  uint64_t x, gate, weight, result;
  uint x_stride, gate_stride, result_stride;
  uint rows, cols;
  float eps;
  uint rounds_weighted;  // whether weight * n is rounded to T before the gate
};

struct LayerNormPush {
  uint64_t x, weight, bias, result;
  uint x_stride, result_stride;
  uint rows, cols;
  float eps;
};

PUSH_END
