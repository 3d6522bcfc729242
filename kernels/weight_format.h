#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/types.h"

namespace ferry {

/// How a weight matrix holds its elements. Integer weights are multiplied with rows quantised to int8 ("a8"), the others with
/// rows of values. kE4M3: codes of 8 bits, a sign, 4 bits of exponent and 3 of mantissa.
enum class WeightFormat : uint8_t { kF32, kBF16, kInt8, kInt4, kE4M3 };

struct WeightType {
  WeightFormat format = WeightFormat::kBF16;
  int32_t group_size = 0;  // kInt4: elements of k that share a scale and a zero point; kE4M3: a scale; else 0
  bool is_wide = false;    // kInt4: scales keep 20 bits of mantissa, which other tools' need, instead of 5

  bool is_integer() const { return format == WeightFormat::kInt8 || format == WeightFormat::kInt4; }
  /// Whether only a checkpoint that holds codes itself can be packed so: nothing is quantised to it here.
  bool is_as_stored() const { return format == WeightFormat::kE4M3 || is_wide; }
  friend bool operator==(const WeightType&, const WeightType&) = default;
};

/// Whether products with such weights (absent: plain ones) multiply codes of their rows.
constexpr bool takes_codes(const std::optional<WeightType>& type) { return type && type->is_integer(); }
constexpr WeightType plain_weights(DType dtype) { return {dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16}; }

/// "f32", "bf16", "w8a8", "w4a8:64", "w4a8:128:wide", "e4m3:128".
std::string weight_type_name(WeightType type);
/// The reverse for types with codes; "w4a8" without a group gives group size 0. Nothing for other text.
std::optional<WeightType> parse_quantized_type(std::string_view text);

inline constexpr int32_t kDefaultGroupSize = 64;
constexpr bool is_group_size(int64_t size) { return size == 32 || size == 64 || size == 128 || size == 256; }
inline constexpr int64_t kRowAlignment = 64;  // quantised rows end in zeros up to a multiple of this

/// int32 sums hold 65536 products of codes.
inline constexpr int64_t kMaxQuantizedK = 65536;

/// Columns of rows of `k` codes.
constexpr int64_t quantized_cols(int64_t k) { return (k + kRowAlignment - 1) / kRowAlignment * kRowAlignment; }
/// Columns of rows of `k` values or, in kI8, codes.
constexpr int64_t row_cols(DType dtype, int64_t k) { return dtype == DType::kI8 ? quantized_cols(k) : k; }

}  // namespace ferry
