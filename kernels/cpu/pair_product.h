#pragma once

#include <cstdint>

#include "kernels/cpu/dot_bf16.h"
#include "kernels/cpu/words.h"

// Small matrix products of bf16 on scratch memory, with sums in fp32: the sibling of tile_matmul.h. Factors are words of two
// bf16 that follow each other along k. Included only by files that are compiled for AVX-512 BF16.
//
// Each output has one accumulator that takes the pairs in ascending k: what lies in other rows and columns changes no bit.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int kPairRows = 8;  // rows and vectors of one tile: 8 x 2 registers of sums
constexpr int kPairVectors = 2;
constexpr int64_t kPairCols = kPairVectors * kWords;

/// C = c_scale C + A B.
struct PairProduct {
  const uint32_t* a;  // [m, num_pairs] words, element (r, p) at a[r * a_row_stride + p * a_pair_stride]
  int64_t a_row_stride;
  int64_t a_pair_stride;
  const uint32_t* b;  // [num_pairs, n] words, rows b_stride apart
  int64_t b_stride;
  float* c;  // [m, n] rows c_stride apart
  int64_t c_stride;
  int64_t m;  // a multiple of kPairRows
  int64_t n;  // a multiple of kPairCols
  int64_t num_pairs;
  float c_scale;  // at 0, C is written without being read
};

/// kTransposed says which of A's strides is 1: the compiler addresses a constant stride with less work.
template <bool kTransposed>
void multiply_tile(const PairProduct& p, int64_t row, int64_t col) {
  __m512 sums[kPairRows][kPairVectors];
  float* c = p.c + row * p.c_stride + col;
  const __m512 scale = _mm512_set1_ps(p.c_scale);
#pragma GCC unroll 8
  for (int r = 0; r < kPairRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kPairVectors; ++v) {
      sums[r][v] =
          p.c_scale == 0.0f ? _mm512_setzero_ps() : _mm512_mul_ps(_mm512_loadu_ps(c + r * p.c_stride + v * kWords), scale);
    }
  }
  const uint32_t* a = p.a + row * p.a_row_stride;
  const uint32_t* b = p.b + col;
  const int64_t row_stride = kTransposed ? 1 : p.a_row_stride, pair_stride = kTransposed ? p.a_pair_stride : 1;
  for (int64_t pair = 0; pair < p.num_pairs; ++pair, a += pair_stride, b += p.b_stride) {
    const __m512i right[kPairVectors] = {_mm512_loadu_si512(b), _mm512_loadu_si512(b + kWords)};
#pragma GCC unroll 8
    for (int r = 0; r < kPairRows; ++r) {
      const __m512i left = _mm512_set1_epi32(static_cast<int32_t>(a[r * row_stride]));
#pragma GCC unroll 2
      for (int v = 0; v < kPairVectors; ++v) add_products(sums[r][v], left, right[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kPairRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kPairVectors; ++v) _mm512_storeu_ps(c + r * p.c_stride + v * kWords, sums[r][v]);
  }
}

/// Computes the product. One of A's strides must be 1. Columns outermost: a strip of B stays in the first-level cache.
inline void multiply_pairs(const PairProduct& p) {
  for (int64_t col = 0; col < p.n; col += kPairCols) {
    for (int64_t row = 0; row < p.m; row += kPairRows) {
      if (p.a_pair_stride == 1) {
        multiply_tile<false>(p, row, col);
      } else {
        multiply_tile<true>(p, row, col);
      }
    }
  }
}

/// Words of a value of `first` and one of `second`, rounded to bf16.
[[gnu::always_inline]] inline __m512i round_to_pairs(__m512 first, __m512 second) {
  const __m512i places = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
                                          4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_maskz_permutexvar_epi16(0xffffffffU, places, round_to_bf16(first, second));
}

/// The 32 bf16 at `first` and those at `second` as 32 words of one of each.
[[gnu::always_inline]] inline void interleave_values(const uint32_t* first, const uint32_t* second, uint32_t* words) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4,
                                       35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55, 23, 54, 22, 53, 21,
                                        52, 20, 51, 19, 50, 18, 49, 17, 48, 16);
  const __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
  _mm512_storeu_si512(words, _mm512_permutex2var_epi16(a, low, b));
  _mm512_storeu_si512(words + kWords, _mm512_permutex2var_epi16(a, high, b));
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
