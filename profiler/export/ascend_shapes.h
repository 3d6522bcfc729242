#pragma once

#include <cstdint>
#include <vector>

#include "profiler/capture.h"

// Shapes and data types of an operator's tensors, weights included, as kernel_details.csv names them.

namespace ferry {

struct TensorShape {
  std::vector<int64_t> dims;
  const char* type = "";  // "DT_BF16", "FLOAT", "INT8", "INT4", "INT32"
};

struct KernelShapes {
  std::vector<TensorShape> inputs, outputs;
};

/// Of one span with arguments `a` and `b`, in a step of `num_sequences`. Empty where the span does not tell. A step's keys are
/// known as `b` thousands of rows times keys (profiler/report/operator_cost.h), so the length of attention's cache is rounded
/// likewise.
KernelShapes kernel_shapes(const ModelFacts& model, Zone zone, uint32_t a, uint32_t b, int64_t num_sequences);

}  // namespace ferry
