#pragma once

#include "kernels/cpu/bf16_attention.h"
#include "kernels/cpu/kv_codes.h"

// From rows of codes in the cache (kernels/kv_layout.h) to bf16, which is exact. Included only by files that are compiled for
// one instruction set, with AVX-512 at least.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

static_assert(kKvGroupCols == kPairCols);

/// 16 codes as fp32, times `scale`: bf16 whose lower halves are zeros, or NaN.
[[gnu::always_inline]] inline __m512 widen_codes(__m128i codes, __m512 scale) {
  return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, codes)) * scale;
}
[[gnu::always_inline]] inline __m128i load_codes(const int8_t* codes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(codes));
}

/// The upper halves of 32 columns, in their order.
[[gnu::always_inline]] inline __m512i upper_halves(__m512 first, __m512 second) {
  alignas(64) static constexpr uint16_t kPlaces[kPairCols] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                              33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(_mm512_castps_si512(first), _mm512_load_si512(kPlaces), _mm512_castps_si512(second));
}

/// 32 columns of a row as bf16.
[[gnu::always_inline]] inline __m512i widen_group(const int8_t* codes, float scale) {
  const __m512 factor = _mm512_set1_ps(scale);
  return upper_halves(widen_codes(load_codes(codes), factor), widen_codes(load_codes(codes + kSide), factor));
}

/// A row, and zeros behind it up to whole 32 columns; `to` is aligned to 64 bytes.
inline void widen_row(const CodeRow& row, int64_t head_dim, uint16_t* to) {
  int64_t d = 0;
  for (; d + kPairCols <= head_dim; d += kPairCols)
    _mm512_store_si512(to + d, widen_group(row.codes + d, scale_of(row.exponents[d / kPairCols])));
  if (d == head_dim) return;
  alignas(16) int8_t last[kPairCols] = {};
  std::memcpy(last, row.codes + d, static_cast<std::size_t>(head_dim - d));
  _mm512_store_si512(to + d, widen_group(last, scale_of(row.exponents[d / kPairCols])));
}

/// The scales of `count` groups, rounded up to 16; exponents are read up to the last.
inline void widen_scales(const uint8_t* exponents, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += kSide) {
    const auto mask = static_cast<__mmask16>(mask_from(i, count) & 0xffffU);
    const __m512i wide = _mm512_maskz_cvtepu8_epi32(mask, _mm_maskz_loadu_epi8(mask, exponents + i));
    _mm512_storeu_si512(to + i, _mm512_maskz_slli_epi32(0xffff, wide, 23));
  }
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
