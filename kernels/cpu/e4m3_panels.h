#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul_block.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu/simd.h"

// What the kernels of e4m3 products share. A group's codes are widened to the lines of a bf16 panel, exactly, and multiplied as
// those are; the sums of the group then join the others by one fused multiply-add with the column's scale, groups in ascending
// order. So weights cost a byte of memory traffic each, and rows stay as precise as they are.

namespace ferry::FERRY_ISA_NAMESPACE {

inline constexpr int64_t kMostGroup = 256;

/// Room for a group as bf16 lines.
struct WidenedGroup {
  alignas(64) bfloat16 lines[kMostGroup * kPanelCols];
};

/// A group of one panel.
struct CodedGroup {
  int64_t first_k = 0;
  int64_t num_k = 0;        // of them, padding included
  const std::byte* lines;   // of codes
  const std::byte* scales;  // [32] f32
};

#ifdef __AVX512BW__

/// Two codes in each 32-bit lane, in the upper bytes of its halves, to two bf16. An exponent of zero has no leading one: those
/// seven values and zero come from a table.
[[gnu::always_inline]] inline __m512i widen_codes(__m512i codes) {
  alignas(64) static constexpr uint16_t kSmall[32] = {0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60};
  const __m512i magnitude = _mm512_and_si512(_mm512_srli_epi16(codes, 4), _mm512_set1_epi16(0x07F0));
  const __m512i rebased = _mm512_add_epi16(magnitude, _mm512_set1_epi16(0x3C00));  // bias 7 becomes bias 127
  const __mmask32 is_small = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x7800));
  const __m512i value =
      _mm512_mask_permutexvar_epi16(rebased, is_small, _mm512_srli_epi16(codes, 8), _mm512_load_si512(kSmall));
  constexpr int kFirstOrBoth = 0xF8;  // a | (b & c)
  return _mm512_ternarylogic_epi32(value, codes, _mm512_set1_epi16(static_cast<int16_t>(0x8000)), kFirstOrBoth);
}
/// A line of codes to the lines of its two pairs.
[[gnu::always_inline]] inline void widen_line(const std::byte* line, std::byte* first_pair, std::byte* second_pair) {
  const __m512i codes = _mm512_load_si512(line);
  _mm512_store_si512(first_pair, widen_codes(_mm512_slli_epi16(codes, 8)));
  _mm512_store_si512(second_pair, widen_codes(codes));
}

#else

/// The code in the uppermost byte of each lane as f32: two operations give what has a leading one, and 2 x - 2^-6 turns the one
/// that an exponent of zero does not have into none.
[[gnu::always_inline]] inline I32x16 widen_codes(I32x16 codes) {
  const I32x16 magnitude = (codes >> 4) & I32x16(0x07F00000);
  const F32x16 rebased = bit_cast_float(magnitude + I32x16(0x3C000000));
  const F32x16 value = select(rebased < F32x16(0x1p-6F), rebased + rebased - F32x16(0x1p-6F), rebased);
  return bit_cast_int(value) | (codes & I32x16(INT32_MIN));
}
/// A line of codes to the lines of its two pairs.
[[gnu::always_inline]] inline void widen_line(const std::byte* line, std::byte* first_pair, std::byte* second_pair) {
  I32x16 codes;
  std::memcpy(&codes, line, sizeof(codes));
  const auto pair = [](I32x16 low, I32x16 high) {
    return ((widen_codes(low) >> 16) & I32x16(0xFFFF)) | (widen_codes(high) & I32x16(static_cast<int32_t>(0xFFFF0000U)));
  };
  const I32x16 first = pair(codes << 24, codes << 8), second = pair(codes << 16, codes);
  std::memcpy(first_pair, &first, sizeof(first));
  std::memcpy(second_pair, &second, sizeof(second));
}

#endif

/// The group's weights without their scales, in the lines of a bf16 panel.
inline void widen_group(const CodedGroup& group, WidenedGroup& out) {
  auto* to = reinterpret_cast<std::byte*>(out.lines);
  const std::byte* line = group.lines;
  for (int64_t k = 0; k < group.num_k; k += 4, line += 2 * kLineBytes, to += 4 * kLineBytes) {
    for (int64_t half = 0; half < 2 * kLineBytes; half += kLineBytes) {
      prefetch_stream(line + half);
      widen_line(line + half, to + half, to + half + 2 * kLineBytes);
    }
  }
}

/// Calls fn(group) for the groups of one panel of `block`, in ascending order.
template <class Fn>
[[gnu::always_inline]] inline void for_each_group(const MatmulBlock& block, const std::byte* panel, Fn fn) {
  for (int64_t k = 0; k < block.k; k += block.type.group_size) {
    const int64_t left = padded_k(block.type.format, block.k - k);
    const int64_t num_k = left < block.type.group_size ? left : block.type.group_size;
    const std::byte* scales = panel + num_k * kPanelCols;
    fn(CodedGroup{k, num_k, panel, scales});
    panel = scales + group_word_bytes(block.type);
  }
}

/// sums += scales * group_sums, for [num_rows, 32] sums `stride` floats apart.
inline void add_scaled(const CodedGroup& group, const float* group_sums, float* sums, int64_t stride, int64_t num_rows) {
  for (int64_t half = 0; half < kPanelCols; half += kHalfCols) {
    const F32x16 scale = load(reinterpret_cast<const float*>(group.scales) + half);
    for (int64_t r = 0; r < num_rows; ++r) {
      float* sum = sums + r * stride + half;
      store(sum, fma(scale, load(group_sums + r * stride + half), load(sum)));
    }
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
