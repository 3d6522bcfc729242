#pragma once

#include "kernels/cpu/matmul_block.h"
#include "kernels/cpu/simd.h"

// The last part of every product kernel: fp32 sums of some rows and one panel become rows of the result.

namespace ferry::FERRY_ISA_NAMESPACE {

/// Sums of `num_rows` rows from `first_row` of the block and panel `panel`.
struct SumTile {
  const float* sums;  // [num_rows, 32]: half 0, half 1
  int64_t stride;     // floats from row to row
  int64_t first_row;
  int64_t num_rows;
  int64_t panel;
};

template <class T>
[[gnu::always_inline]] inline void store_columns(T* out, F32x16 sums, int64_t num_cols) {
  if (num_cols >= kHalfCols) {
    store(out, sums);
  } else if (num_cols > 0) {
    store_partial(out, sums, num_cols);
  }
}

template <class T>
void finish_tile_as(const MatmulBlock& block, const SumTile& tile) {
  const int64_t panel_cols = block.is_gated ? kHalfCols : kPanelCols;
  const int64_t first_col = tile.panel * panel_cols, num_cols = block.num_cols - first_col;
  T* out = reinterpret_cast<T*>(block.out) + tile.first_row * block.out_stride + first_col;
  for (int64_t r = 0; r < tile.num_rows; ++r, out += block.out_stride) {
    const F32x16 low = load(tile.sums + r * tile.stride), high = load(tile.sums + r * tile.stride + kHalfCols);
    if (block.is_gated) {
      store_columns(out, rounded<T>(silu(rounded<T>(low))) * rounded<T>(high), num_cols);
    } else {
      store_columns(out, low, num_cols);
      store_columns(out + kHalfCols, high, num_cols - kHalfCols);
    }
  }
}

inline void finish_tile(const MatmulBlock& block, const SumTile& tile) {
  if (block.out_dtype == DType::kF32) {
    finish_tile_as<float>(block, tile);
  } else {
    finish_tile_as<bfloat16>(block, tile);
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
