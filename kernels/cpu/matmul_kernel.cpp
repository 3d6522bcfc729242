#include "kernels/cpu/matmul_kernel.h"

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_matmul.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

// Rows of x are copied to scratch in fp32, this far apart: not a power of two, so that the rows of a tile fall into different
// cache sets.
constexpr int64_t kXStride = kMatmulBlockK + kLanes;
constexpr int64_t kSumStride = kMaxBlockPanels * kPanelCols;
constexpr int kPanelVectors = static_cast<int>(kPanelCols / kLanes);

/// Vector `v` (columns 16 v ‥ 16 v + 15) of a panel's row k.
[[gnu::always_inline]] inline F32x16 load_panel(const float* panel, int64_t k, int v) {
  return load(panel + k * kPanelCols + v * kLanes);
}
[[gnu::always_inline]] inline F32x16 load_panel(const bfloat16* panel, int64_t k, int v) {
  I32x16 words;
#pragma GCC unroll 2
  for (int i = 0; i < kParts; ++i) {
    std::memcpy(&words.part[i], panel + k * kPanelCols + 2 * i * kRegisterLanes, sizeof(words.part[i]));
  }
  return bit_cast_float(v == 0 ? words << 16 : words & I32x16(static_cast<int32_t>(0xffff0000U)));
}

/// Sums of kRows rows and kVectors vectors, spread over whole panels or a part of one, over a slice of k.
struct SumTile {
  const float* x;  // [kRows, num_k] rows kXStride apart
  float* sums;     // [kRows, kVectors * 16] rows kSumStride apart
  int64_t num_k;
  int64_t panel_stride;  // elements from one panel to the next
  bool is_first;         // the first slice of k starts from zero
};

template <class T, int kRows, int kVectors>
void add_tile(const SumTile& tile, const T* panel, int first_vector) {
  F32x16 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = tile.is_first ? F32x16(0.0f) : load(tile.sums + r * kSumStride + v * kLanes);
    }
  }
  const int64_t panel_stride = tile.panel_stride;
  const auto load_b = [ panel, panel_stride, first_vector ](int64_t k, int v) __attribute__((always_inline)) {
    if constexpr (kVectors == 1) return load_panel(panel, k, first_vector);
    return load_panel(panel + v / kPanelVectors * panel_stride, k, v % kPanelVectors);
  };
  accumulate_tile<kRows, kVectors>(acc, tile.x, kXStride, 1, tile.num_k, load_b);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(tile.sums + r * kSumStride + v * kLanes, acc[r][v]);
  }
}

/// Adds a slice of k to the sums of `num_rows` <= kRows rows and all `num_panels` panels.
template <class T, int kRows>
void add_row_tile(SumTile tile, int64_t num_rows, const T* panels, int64_t num_panels) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) return add_row_tile<T, kRows - 1>(tile, num_rows, panels, num_panels);
  }
  // Few rows leave registers free: two panels at once keep more products in flight while weights stream in.
  constexpr bool kFewRows = kRows * 2 <= kTileRows;
  int64_t p = 0;
  const T* panel = panels;
  float* sums = tile.sums;
  if constexpr (kFewRows && kTileVectors == kPanelVectors) {
    for (; p + 2 <= num_panels; p += 2, panel += 2 * tile.panel_stride) {
      tile.sums = sums + p * kPanelCols;
      add_tile<T, kRows, 2 * kPanelVectors>(tile, panel, 0);
    }
  }
  for (; p < num_panels; ++p, panel += tile.panel_stride) {
    tile.sums = sums + p * kPanelCols;
    if constexpr (kFewRows || kTileVectors == kPanelVectors) {
      add_tile<T, kRows, kPanelVectors>(tile, panel, 0);
    } else {
      for (int v = 0; v < kPanelVectors; ++v) {
        tile.sums = sums + p * kPanelCols + v * kLanes;
        add_tile<T, kRows, 1>(tile, panel, v);
      }
    }
  }
}

/// Copies `count` elements to fp32.
template <class T>
void widen_row(const T* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  if (i < count) store(to + i, load_partial(from + i, count - i));
}

template <class T>
void store_row(const float* sums, T* out, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, load(sums + i));
  if (i < count) store_partial(out + i, load(sums + i), count - i);
}

template <class T>
void matmul_block_of(const MatmulBlock& block) {
  float* x = thread_scratch(kMaxBlockRows * (kXStride + kSumStride));
  float* sums = x + kMaxBlockRows * kXStride;
  const int64_t num_panels = (block.num_cols + kPanelCols - 1) / kPanelCols;
  const int64_t num_tiles = (block.num_rows + kTileRows - 1) / kTileRows;
  for (int64_t k = 0; k < block.k; k += kMatmulBlockK) {
    const int64_t num_k = block.k - k < kMatmulBlockK ? block.k - k : kMatmulBlockK;
    for (int64_t r = 0; r < block.num_rows; ++r) {
      widen_row(reinterpret_cast<const T*>(block.x) + r * block.x_stride + k, x + r * kXStride, num_k);
    }
    const T* panels = reinterpret_cast<const T*>(block.panels) + k * kPanelCols;
    // A slice of one or two panels stays in the first-level cache while all rows pass over it.
    for (int64_t p = 0; p < num_panels; p += 2) {
      const int64_t panels_here = num_panels - p < 2 ? num_panels - p : 2;
      for (int64_t tile = 0; tile < num_tiles; ++tile) {
        const int64_t row = block.num_rows * tile / num_tiles;
        const int64_t num_rows = block.num_rows * (tile + 1) / num_tiles - row;
        const SumTile sum_tile{x + row * kXStride, sums + row * kSumStride + p * kPanelCols, num_k, block.k * kPanelCols,
                               k == 0};
        add_row_tile<T, kTileRows>(sum_tile, num_rows, panels + p * block.k * kPanelCols, panels_here);
      }
    }
  }
  for (int64_t r = 0; r < block.num_rows; ++r) {
    store_row(sums + r * kSumStride, reinterpret_cast<T*>(block.out) + r * block.out_stride, block.num_cols);
  }
}

}  // namespace

void matmul_block(const MatmulBlock& block) {
  if (block.dtype == DType::kF32) {
    matmul_block_of<float>(block);
  } else {
    matmul_block_of<bfloat16>(block);
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
