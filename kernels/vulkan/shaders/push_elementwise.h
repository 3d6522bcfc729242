#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Push constants of ops that work element by element. Strides count elements.

PUSH_BEGIN

// What elementwise.comp computes of elements a and b, and of a row's gate: its specialisation constant 2.
const uint kAdd = 0;                // a + b
const uint kMultiply = 1;           // a * b
const uint kSigmoidGate = 2;        // a * T(sigmoid(b))
const uint kSwiglu = 3;             // T(silu(a)) * b
const uint kSharedExpertMerge = 4;  // a + T(T(sigmoid(gate)) * b)

struct ElementwisePush {
  uint64_t a, b, result;
  uint64_t gate;  // [rows, 1], of kSharedExpertMerge
  uint a_stride, b_stride, result_stride, gate_stride;
  uint rows, cols;
};

PUSH_END
