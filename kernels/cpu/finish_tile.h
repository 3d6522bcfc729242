#pragma once

#include "kernels/cpu/gelu.h"
#include "kernels/cpu/matmul_block.h"
#include "kernels/cpu/simd.h"
#include "kernels/matmul.h"

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

/// 16 sums or fewer of one row, from column `col` of the block on, with what the call has behind them.
template <class T, class Lanes>
[[gnu::always_inline]] inline void add_bias_to(const MatmulBlock& block, F32x16 sums, int64_t row, int64_t col, Lanes lanes) {
  const ProductFinish& finish = *block.finish;
  T* out = reinterpret_cast<T*>(block.out) + row * block.out_stride + col;
  const int64_t call_row = block.first_row + row, call_col = block.first_col + col;
  const F32x16 y = rounded<T>(sums + load(finish.bias.raw() + call_col, lanes));
  if (finish.residual.data == nullptr) return store(out, activate(finish.activation, y), lanes);
  store(out, load(reinterpret_cast<const T*>(finish.residual.row_address(call_row)) + call_col, lanes) + y, lanes);
}

/// Apart from finish_tile_as(), which few registers and no calls keep fast.
template <class T>
[[gnu::noinline]] void finish_tile_with_bias(const MatmulBlock& block, const SumTile& tile) {
  for (int64_t r = 0; r < tile.num_rows; ++r) {
    for (int64_t h = 0; h < kPanelCols; h += kHalfCols) {
      const int64_t row = tile.first_row + r, col = tile.panel * kPanelCols + h, num_cols = block.num_cols - col;
      const F32x16 sums = load(tile.sums + r * tile.stride + h);
      if (num_cols >= kHalfCols) {
        add_bias_to<T>(block, sums, row, col, AllLanes{});
      } else if (num_cols > 0) {
        add_bias_to<T>(block, sums, row, col, num_cols);
      }
    }
  }
}

inline void finish_tile(const MatmulBlock& block, const SumTile& tile) {
  if (block.out_dtype == DType::kF32) {
    block.finish != nullptr ? finish_tile_with_bias<float>(block, tile) : finish_tile_as<float>(block, tile);
  } else {
    block.finish != nullptr ? finish_tile_with_bias<bfloat16>(block, tile) : finish_tile_as<bfloat16>(block, tile);
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
