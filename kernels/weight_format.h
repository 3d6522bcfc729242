#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/types.h"

namespace ferry {

/// How a weight matrix holds its elements. Integer weights are multiplied with rows quantised to int8 ("a8").
enum class WeightFormat : uint8_t { kF32, kBF16, kInt8, kInt4 };

struct WeightType {
  WeightFormat format = WeightFormat::kBF16;
  int32_t group_size = 0;  // kInt4: elements of k that share a scale and a zero point; else 0

  bool is_quantized() const { return format == WeightFormat::kInt8 || format == WeightFormat::kInt4; }
  friend bool operator==(const WeightType&, const WeightType&) = default;
};

constexpr WeightType plain_weights(DType dtype) { return {dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16, 0}; }

/// "f32", "bf16", "w8a8", "w4a8:64".
std::string weight_type_name(WeightType type);
/// The reverse for quantised types; "w4a8" without a group gives group size 0. Nothing for other text.
std::optional<WeightType> parse_quantized_type(std::string_view text);

inline constexpr int32_t kDefaultGroupSize = 64;  // of 32, 64, 128 and 256, which are allowed
inline constexpr int64_t kRowAlignment = 64;      // quantised rows end in zeros up to a multiple of this

/// int32 sums hold 65536 products of codes.
inline constexpr int64_t kMaxQuantizedK = 65536;

/// Columns of rows of `k` codes.
constexpr int64_t quantized_cols(int64_t k) { return (k + kRowAlignment - 1) / kRowAlignment * kRowAlignment; }
/// Columns of rows of `k` values or, in kI8, codes.
constexpr int64_t row_cols(DType dtype, int64_t k) { return dtype == DType::kI8 ? quantized_cols(k) : k; }

}  // namespace ferry
