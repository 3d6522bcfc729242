#include "kernels/cpu/tile_matmul.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// The tile of kRows rows from `row` and kVectors vectors from column `col`. kTransposed says which of A's strides is 1: the
/// compiler addresses a constant stride with less work.
template <int kRows, int kVectors, bool kTransposed>
void product_tile(const TileProduct& p, int64_t row, int64_t col) {
  F32x16 acc[kRows][kVectors];
  float* c = p.c + row * p.c_stride + col;
  if (p.c_scale == 0.0f) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = F32x16(0.0f);
    }
  } else {
    const F32x16 scale(p.c_scale);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = rounded<float>(load(c + r * p.c_stride + v * kLanes) * scale);
    }
  }
  const float* b = p.b + col;
  const int64_t b_stride = p.b_stride;
  const auto load_b = [ b, b_stride ](int64_t k, int v) __attribute__((always_inline)) {
    return load(b + k * b_stride + v * kLanes);
  };
  accumulate_tile<kRows, kVectors>(acc, p.a + row * p.a_row_stride, kTransposed ? 1 : p.a_row_stride,
                                   kTransposed ? p.a_k_stride : 1, p.k, load_b);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + r * p.c_stride + v * kLanes, acc[r][v]);
  }
}

template <int kRows, bool kTransposed>
void product_row_tile(const TileProduct& p, int64_t row, int64_t num_rows) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) return product_row_tile<kRows - 1, kTransposed>(p, row, num_rows);
  }
  int64_t col = 0;
  for (; col + kTileVectors * kLanes <= p.n; col += kTileVectors * kLanes) {
    product_tile<kRows, kTileVectors, kTransposed>(p, row, col);
  }
  for (; col < p.n; col += kLanes) product_tile<kRows, 1, kTransposed>(p, row, col);
}

}  // namespace

void tile_matmul(const TileProduct& p) {
  const int64_t num_tiles = (p.m + kTileRows - 1) / kTileRows;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {  // even tiles: 5 + 4 rows are faster than 8 + 1
    const int64_t row = p.m * tile / num_tiles;
    const int64_t num_rows = p.m * (tile + 1) / num_tiles - row;
    if (p.a_k_stride == 1) {
      product_row_tile<kTileRows, false>(p, row, num_rows);
    } else {
      product_row_tile<kTileRows, true>(p, row, num_rows);
    }
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
