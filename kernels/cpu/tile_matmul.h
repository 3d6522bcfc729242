#pragma once

#include <cstdint>

#include "kernels/cpu/simd.h"

// Small fp32 matrix products on scratch memory, held in registers a tile at a time. Attention, the delta rule and the packed
// matrix product are all built from the one loop in accumulate_tile.
//
// Each output has one accumulator that takes the products in ascending k with fused multiply-adds. A tile's shape therefore
// never changes a result: it may differ with the instruction set, the number of rows left and the caller's blocking.

namespace ferry::FERRY_ISA_NAMESPACE {

// Rows and vectors of one tile. 8 x 2 x 16 floats take 16 of AVX-512's 32 registers, 6 x 1 x 16 floats 12 of AVX2's 16.
inline constexpr int kTileRows = kParts == 1 ? 8 : 6;
inline constexpr int kTileVectors = kParts == 1 ? 2 : 1;

/// acc[r][v] += sum_k a[r * row_stride + k * k_stride] * load_b(k, v), k ascending.
template <int kRows, int kVectors, class LoadB>
[[gnu::always_inline]] inline void accumulate_tile(F32x16 (&acc)[kRows][kVectors], const float* a, int64_t row_stride,
                                                   int64_t k_stride, int64_t num_k, LoadB load_b) {
  for (int64_t k = 0; k < num_k; ++k) {
    F32x16 b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) b[v] = load_b(k, v);
    const float* column = a + k * k_stride;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32x16 x(column[r * row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(x, b[v], acc[r][v]);
    }
  }
}

/// C = c_scale C + A B.
struct TileProduct {
  const float* a;  // [m, k], element (r, k) at a[r * a_row_stride + k * a_k_stride]
  int64_t a_row_stride;
  int64_t a_k_stride;
  const float* b;  // [k, n] rows b_stride apart
  int64_t b_stride;
  float* c;  // [m, n] rows c_stride apart
  int64_t c_stride;
  int64_t m;
  int64_t n;  // a multiple of 16
  int64_t k;
  float c_scale;  // at 0, C is written without being read
};

/// Computes the product. One of A's strides must be 1.
void tile_matmul(const TileProduct& product);

}  // namespace ferry::FERRY_ISA_NAMESPACE
