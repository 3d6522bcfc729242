#include "kernels/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/cpu/int4_search.h"
#include "kernels/e4m3.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr float kInt8Limit = 127.0F;
constexpr int kInt8Zero = 128;
constexpr int64_t kRowsPerTask = 1024;

/// Row `r` as f32.
void read_row(ConstMatrixView weights, int64_t r, std::vector<float>& row) {
  visit_dtype(weights.dtype, [&]<class T>() {
    const T* from = weights.row<T>(r);
    for (int64_t c = 0; c < weights.cols; ++c) row[static_cast<std::size_t>(c)] = to_float(from[c]);
  });
}

/// The largest magnitude. Magnitudes order as their bits do, and integers let the compiler use vectors. Throws
/// Error{kInvalidArgument} for a value that is not finite.
float largest_magnitude(const std::vector<float>& row, int64_t r) {
  constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  int32_t largest = 0;
  for (const float w : row) largest = std::max(largest, std::bit_cast<int32_t>(w) & kMagnitude);
  if (largest < kInfinity) return std::bit_cast<float>(largest);
  const auto bad = std::find_if(row.begin(), row.end(), [](float w) { return !std::isfinite(w); });
  throw_invalid("has " + std::to_string(*bad) + " at row " + std::to_string(r) + ", column " +
                std::to_string(bad - row.begin()) + "; weights must be finite to be quantised");
}

void quantize_int8_row(const std::vector<float>& row, float largest, QuantizedMatrix& out, int64_t r) {
  // Above 2^23 the float next to a float is 1 away: the sum is rounded to nearest even, and its low bits are the code.
  constexpr float kToInteger = 0x1.8p23F + kInt8Zero;
  const float scale = largest / kInt8Limit;
  const bool is_zero = scale < std::numeric_limits<float>::min();
  const float inverse = is_zero ? 0.0F : kInt8Limit / largest;
  uint8_t* codes = out.codes.data() + r * out.k;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const float scaled = row[c] * inverse;
    codes[c] = static_cast<uint8_t>(std::bit_cast<uint32_t>(scaled + kToInteger));
  }
  out.scales[static_cast<std::size_t>(r)] = is_zero ? 0.0F : scale;
  out.zero_points[static_cast<std::size_t>(r)] = kInt8Zero;
}

/// Quantises rows first_row ‥ end_row-1 of `weights` into the same rows of `out`.
void quantize_rows(ConstMatrixView weights, int64_t first_row, int64_t end_row, QuantizedMatrix& out) {
  const Int4Search search = select_int4_search();
  std::vector<float> row(static_cast<std::size_t>(out.k));
  for (int64_t r = first_row; r < end_row; ++r) {
    read_row(weights, r, row);
    const float largest = largest_magnitude(row, r);
    if (out.type.format == WeightFormat::kInt8) {
      quantize_int8_row(row, largest, out, r);
      continue;
    }
    for (int64_t g = 0; g < out.num_groups(); ++g) {
      const auto at = static_cast<std::size_t>(r * out.num_groups() + g);
      search(row.data() + g * out.group, out.group, out.codes.data() + r * out.k + g * out.group, out.scales[at],
             out.zero_points[at]);
    }
  }
}

}  // namespace

namespace {

/// Ways out for rows of `k` elements.
std::string types_that_divide(int64_t k) {
  std::string allowed;
  for (const int64_t size : {32, 64, 128, 256}) allowed += k % size == 0 ? "w4a8:" + std::to_string(size) + ", " : "";
  return allowed + "w8a8 or none, or other types by part as in experts=w4a8,mixers=w8a8";
}

}  // namespace

void check_quantizable(int64_t k, WeightType type) {
  if (type.is_integer() && k > kMaxQuantizedK) {
    throw_invalid("has rows of " + std::to_string(k) + " elements; allowed in a quantised matrix: up to " +
                  std::to_string(kMaxQuantizedK));
  }
  if (type.format == WeightFormat::kInt4 && k % type.group_size != 0) {
    throw_invalid("has rows of " + std::to_string(k) + " elements, which groups of " + std::to_string(type.group_size) +
                  " do not divide; allowed: " + (type.is_wide ? "--quantize none or w8a8" : types_that_divide(k)));
  }
}

float QuantizedMatrix::value(int64_t row, int64_t col) const {
  const auto group_idx = static_cast<std::size_t>(row * num_groups() + col / group);
  const uint8_t code = codes[static_cast<std::size_t>(row * k + col)];
  if (type.format == WeightFormat::kE4M3) return scales[group_idx] * e4m3_value(code);
  return scales[group_idx] * static_cast<float>(code - zero_points[group_idx]);
}

QuantizedMatrix quantize_weights(ConstMatrixView weights, WeightType type, ThreadPool* pool) {
  FERRY_CHECK(type.is_integer() && !type.is_as_stored());
  check_quantizable(weights.cols, type);
  QuantizedMatrix out{.type = type, .n = weights.rows, .k = weights.cols, .group = type.group_size};
  if (type.format == WeightFormat::kInt8) out.group = out.k;
  const auto num_groups = static_cast<std::size_t>(out.n * out.num_groups());
  out.codes.resize(static_cast<std::size_t>(out.n * out.k));
  out.scales.resize(num_groups);
  out.zero_points.resize(num_groups);
  if (pool == nullptr) {
    quantize_rows(weights, 0, out.n, out);
  } else {
    parallel_for_throwing(*pool, (out.n + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
      quantize_rows(weights, task * kRowsPerTask, std::min(out.n, (task + 1) * kRowsPerTask), out);
    });
  }
  return out;
}

}  // namespace ferry
