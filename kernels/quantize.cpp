#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/cpu/int4_search.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr float kInt8Limit = 127.0F;
constexpr int kInt8Zero = 128;

/// Row `r` as f32.
void read_row(ConstMatrixView weights, int64_t r, std::vector<float>& row) {
  visit_dtype(weights.dtype, [&]<class T>() {
    const T* from = weights.row<T>(r);
    for (int64_t c = 0; c < weights.cols; ++c) row[static_cast<std::size_t>(c)] = to_float(from[c]);
  });
}

void require_finite(const std::vector<float>& row, int64_t r) {
  float poison = 0;  // 0 * NaN and 0 * infinity are NaN
  for (const float w : row) poison += w * 0.0F;
  if (poison == 0.0F) return;
  const auto bad = std::find_if(row.begin(), row.end(), [](float w) { return !std::isfinite(w); });
  throw_invalid("has " + std::to_string(*bad) + " at row " + std::to_string(r) + ", column " +
                std::to_string(bad - row.begin()) + "; weights must be finite to be quantised");
}

void quantize_int8_row(const std::vector<float>& row, QuantizedMatrix& out, int64_t r) {
  float largest = 0;
  for (const float w : row) largest = std::max(largest, std::abs(w));
  const float scale = largest / kInt8Limit;
  const bool is_zero = scale < std::numeric_limits<float>::min();
  const float inverse = is_zero ? 0.0F : kInt8Limit / largest;
  uint8_t* codes = out.codes.data() + r * out.k;
  for (std::size_t c = 0; c < row.size(); ++c) codes[c] = static_cast<uint8_t>(std::lrintf(row[c] * inverse) + kInt8Zero);
  out.scales[static_cast<std::size_t>(r)] = is_zero ? 0.0F : scale;
  out.zero_points[static_cast<std::size_t>(r)] = kInt8Zero;
}

}  // namespace

void check_quantizable(int64_t k, WeightType type) {
  if (k > kMaxQuantizedK) {
    throw_invalid("has rows of " + std::to_string(k) + " elements; allowed in a quantised matrix: up to " +
                  std::to_string(kMaxQuantizedK));
  }
  if (type.format == WeightFormat::kInt4 && k % type.group_size != 0) {
    throw_invalid("has rows of " + std::to_string(k) + " elements, which groups of " + std::to_string(type.group_size) +
                  " do not divide; allowed: w4a8:32, :64, :128 or :256 that divides the rows, or w8a8");
  }
}

float QuantizedMatrix::value(int64_t row, int64_t col) const {
  const auto group_idx = static_cast<std::size_t>(row * num_groups() + col / group);
  const int code = codes[static_cast<std::size_t>(row * k + col)];
  return scales[group_idx] * static_cast<float>(code - zero_points[group_idx]);
}

QuantizedMatrix quantize_weights(ConstMatrixView weights, WeightType type) {
  FERRY_CHECK(type.is_quantized());
  check_quantizable(weights.cols, type);
  QuantizedMatrix out{.type = type, .n = weights.rows, .k = weights.cols, .group = type.group_size};
  if (type.format == WeightFormat::kInt8) out.group = out.k;
  const auto num_groups = static_cast<std::size_t>(out.n * out.num_groups());
  out.codes.resize(static_cast<std::size_t>(out.n * out.k));
  out.scales.resize(num_groups);
  out.zero_points.resize(num_groups);
  const Int4Search search = select_int4_search();
  std::vector<float> row(static_cast<std::size_t>(out.k));
  for (int64_t r = 0; r < out.n; ++r) {
    read_row(weights, r, row);
    require_finite(row, r);
    if (type.format == WeightFormat::kInt8) {
      quantize_int8_row(row, out, r);
      continue;
    }
    for (int64_t g = 0; g < out.num_groups(); ++g) {
      const auto at = static_cast<std::size_t>(r * out.num_groups() + g);
      search(row.data() + g * out.group, out.group, out.codes.data() + r * out.k + g * out.group, out.scales[at],
             out.zero_points[at]);
    }
  }
  return out;
}

}  // namespace ferry
