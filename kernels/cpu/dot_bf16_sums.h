#pragma once

#include "kernels/cpu/bf16_attention.h"
#include "kernels/cpu/dot_bf16.h"

// Products of AVX-512 BF16 whose columns are rows of the batch, as attention has them (bf16_attention.h).

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int kMostRows = 8;  // of a product at a time: 8 x 2 registers of sums, two of the right side, one of the left
constexpr int64_t kTilePairs = kPairCols / 2;

[[gnu::always_inline]] inline __m512i broadcast_pair(const uint16_t* from) {
  int32_t word;
  std::memcpy(&word, from, sizeof(word));
  return _mm512_set1_epi32(word);
}

/// kCount rows of a product with kHalves times 16 columns, as they are in tiles.
template <int kCount, int kHalves>
struct Sums {
  __m512 values[kCount][kHalves];

  [[gnu::always_inline]] void load(const float* from) {
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half) values[r][half] = _mm512_load_ps(from + r * kRows + half * kSide);
    }
  }
  [[gnu::always_inline]] void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half) values[r][half] = _mm512_setzero_ps();
    }
  }
  [[gnu::always_inline]] void store(float* to) const {
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half) _mm512_store_ps(to + r * kRows + half * kSide, values[r][half]);
    }
  }
  /// += kCount rows that lie `stride` apart, the first at `left`, times the first `num_pairs` rows of the tiles `right`.
  [[gnu::always_inline]] void add(const uint16_t* left, int64_t stride, const uint16_t* right, int64_t num_pairs) {
    const uint16_t* bases[(kCount + 3) / 4];  // of four rows each: fewer addresses to keep
#pragma GCC unroll 4
    for (int i = 0; i < (kCount + 3) / 4; ++i) bases[i] = left + 4 * i * stride;
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      __m512i columns[kHalves];
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half) columns[half] = _mm512_load_si512(right + half * kTile + pair * kPairCols);
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) {
        const __m512i values_of_row = broadcast_pair(bases[r / 4] + r % 4 * stride + 2 * pair);
#pragma GCC unroll 2
        for (int half = 0; half < kHalves; ++half) add_products(values[r][half], values_of_row, columns[half]);
      }
    }
  }
};

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
