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
