#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor.h"
#include "kernels/weight_format.h"
#include "runtime/base/thread_pool.h"

namespace ferry {

/// A weight matrix as codes. Integers: w[n, k] ~ scales[n, g] * (codes[n, k] - zero_points[n, g]), g = k / group. e4m3:
/// w[n, k] = scales[n, g] * e4m3(codes[n, k]).
struct QuantizedMatrix {
  WeightType type;
  int64_t n = 0;
  int64_t k = 0;
  int64_t group = 0;                 // elements of k that share a scale: type.group_size, of int8 all of k
  std::vector<uint8_t> codes;        // [n, k] 0 ‥ 15 (int4), 1 ‥ 255 (int8) or e4m3
  std::vector<float> scales;         // [n, num_groups] finite; of int8 and of int4 that is not wide >= 0
  std::vector<uint8_t> zero_points;  // [n, num_groups] 0 ‥ 15 (int4) or 128 (int8); empty of e4m3

  int64_t num_groups() const { return (k + group - 1) / group; }  // the last one of e4m3 may be smaller
  /// The value that stands for w[row, col].
  float value(int64_t row, int64_t col) const;
};

/// Throws Error{kInvalidArgument} for k above kMaxQuantizedK and for k that the group size does not divide.
void check_quantizable(int64_t k, WeightType type);

/// Quantises `weights` (f32 or bf16) without calibration data.
///
/// int8: a row's largest magnitude becomes 127. int4: for every group the scale (8 bits exponent, 4 bits mantissa) and the
/// zero point that leave the least square error are searched: ranges shrunk step by step, the scale then fitted to the codes.
/// Rows or groups whose scale would not be a normal float become zeros.
///
/// Throws Error{kInvalidArgument} for a weight that is not finite (named by row and column) and as check_quantizable does. The
/// same bits on every processor and with any number of threads. Uses the threads of `pool` if there is one; thread-safe
/// without.
QuantizedMatrix quantize_weights(ConstMatrixView weights, WeightType type, ThreadPool* pool = nullptr);

}  // namespace ferry
