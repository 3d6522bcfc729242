#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace ferry {

/// Element type of matrices: f32 and bf16 are values, i8 are codes of quantised rows, which have a scale elsewhere.
enum class DType : uint8_t { kF32, kBF16, kI8 };

constexpr int64_t dtype_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : dtype == DType::kBF16 ? 2 : 1; }
constexpr const char* dtype_name(DType dtype) { return dtype == DType::kF32 ? "f32" : dtype == DType::kBF16 ? "bf16" : "i8"; }

using TokenId = int32_t;
/// Where no token can be chosen: every logit is NaN or minus infinity.
inline constexpr TokenId kNoToken = -1;

/// An integer that cannot be mistaken for another kind of integer.
template <class Tag>
struct StrongId {
  int32_t value = -1;
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};
using LogicalExpertId = StrongId<struct LogicalExpertTag>;    // the model's expert number, 0 ‥ num_experts-1
using PhysicalExpertId = StrongId<struct PhysicalExpertTag>;  // one placed copy of an expert
using Rank = StrongId<struct RankTag>;                        // a process of the job; 0 is the coordinator

/// bfloat16 storage: the upper half of an IEEE float32.
struct bfloat16 {
  uint16_t bits = 0;
};

inline float to_float(float x) { return x; }
inline float to_float(bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

/// Round to nearest even; a NaN stays a (quiet) NaN.
inline bfloat16 to_bfloat16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = u + 0x7fffU + ((u >> 16) & 1U);
  const uint32_t quiet = u | 0x00400000U;
  const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<uint16_t>((is_nan ? quiet : rounded) >> 16)};
}

/// Converts an fp32 result to the storage type T: the one rounding of an op.
template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bfloat16 from_float<bfloat16>(float x) {
  return to_bfloat16(x);
}

/// The value that `x` has after a trip through storage type T.
template <class T>
float round_to(float x) {
  return to_float(from_float<T>(x));
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<bfloat16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::kI8;
}

/// Calls `fn.template operator()<T>()` with the C++ type of `dtype`, f32 or bf16. Codes are no values: kI8 ends the program.
template <class Fn>
decltype(auto) visit_dtype(DType dtype, Fn&& fn) {
  if (dtype == DType::kI8) std::abort();
  if (dtype == DType::kF32) return fn.template operator()<float>();
  return fn.template operator()<bfloat16>();
}

}  // namespace ferry
