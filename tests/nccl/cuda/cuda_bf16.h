#pragma once

#include <bit>
#include <cstdint>

#define __CUDA_BF16_TYPES_EXIST__

/// The upper half of a float, rounded to nearest even. No NaN comes up.
struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    bits = static_cast<uint16_t>((wide + 0x7fffU + ((wide >> 16U) & 1U)) >> 16U);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U); }

  uint16_t bits;
};
