#pragma once

#include <vector>

#include "kernels/tensor.h"
#include "kernels/weight_format.h"

namespace ferry {

/// Rows as int8 with a scale each: x[r, k] ~ scales[r] * values[r, k], -127 ‥ 127. Columns from k up to the next multiple of
/// kRowAlignment are zeros.
struct QuantizedRows {
  QuantizedRows() = default;
  QuantizedRows(int64_t max_rows, int64_t k)
      : values(DType::kI8, max_rows, quantized_cols(k)), scales(static_cast<std::size_t>(max_rows)) {}

  Matrix values;              // [max_rows, quantized_cols(k)]
  std::vector<float> scales;  // [max_rows]
};

}  // namespace ferry
