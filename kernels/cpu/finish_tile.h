#pragma once

#include "kernels/cpu/gelu.h"
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

/// out = T(sums), or what follows a bias, from column `col` of a row of the block on.
template <class T, class Lanes>
[[gnu::always_inline]] inline void finish_lanes(const MatmulBlock& block, F32x16 sums, int64_t row, int64_t col, Lanes lanes) {
  T* out = reinterpret_cast<T*>(block.out) + row * block.out_stride + col;
  if (block.bias == nullptr) return store(out, sums, lanes);
  const F32x16 y = rounded<T>(sums + load(block.bias + col, lanes));
  if (block.residual == nullptr) return store(out, activate(block.activation, y), lanes);
  const T* residual = reinterpret_cast<const T*>(block.residual) + row * block.residual_stride + col;
  store(out, load(residual, lanes) + y, lanes);
}

/// Likewise for a half's columns, as many of them as the block has.
template <class T>
[[gnu::always_inline]] inline void finish_half(const MatmulBlock& block, F32x16 sums, int64_t row, int64_t col) {
  const int64_t num_cols = block.num_cols - col;
  if (num_cols >= kHalfCols) {
    finish_lanes<T>(block, sums, row, col, AllLanes{});
  } else if (num_cols > 0) {
    finish_lanes<T>(block, sums, row, col, num_cols);
  }
}

template <class T>
void finish_tile_as(const MatmulBlock& block, const SumTile& tile) {
  const int64_t first_col = tile.panel * (block.is_gated ? kHalfCols : kPanelCols);
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    const F32x16 low = load(tile.sums + r * tile.stride), high = load(tile.sums + r * tile.stride + kHalfCols);
    const int64_t row = tile.first_row + r;
    if (block.is_gated) {
      finish_half<T>(block, rounded<T>(silu(rounded<T>(low))) * rounded<T>(high), row, first_col);
    } else {
      finish_half<T>(block, low, row, first_col);
      finish_half<T>(block, high, row, first_col + kHalfCols);
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
