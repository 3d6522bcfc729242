#include "kernels/cpu/e4m3_panels.h"
#include "kernels/cpu/finish_tile.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tile_matmul.h"

// f32, bf16 and e4m3 products with fused multiply-adds on fp32 values: every sum takes its products in ascending k, one
// rounding each; of e4m3 a sum for each group.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kMaxRows = 64;   // whose sums are kept at once
constexpr int64_t kMaxPanels = 8;  // likewise: 64 KiB of fp32 sums
constexpr int64_t kSliceK = 256;   // a panel's slice is 16 (bf16) or 32 KiB (f32): it stays in the first-level cache
// Rows of x are copied to scratch in fp32, this far apart: not a power of two, so that the rows of a tile fall into different
// cache sets.
constexpr int64_t kXStride = kSliceK + kLanes;
constexpr int64_t kSumStride = kMaxPanels * kPanelCols;
constexpr int kPanelVectors = static_cast<int>(kPanelCols / kLanes);

/// Vector `v` of a panel's row k.
[[gnu::always_inline]] inline F32x16 load_panel(const float* panel, int64_t k, int v) {
  return load(panel + k * kPanelCols + v * kLanes);
}
/// 16 words of two bf16 each: one half of a panel, elements 2 pair and 2 pair + 1 of k.
[[gnu::always_inline]] inline I32x16 load_pairs(const bfloat16* panel, int64_t pair, int v) {
  I32x16 words;
  std::memcpy(&words, panel + (pair * kPanelVectors + v) * 2 * kLanes, sizeof(words));
  return words;
}

/// Sums of kRows rows and kVectors vectors, spread over whole panels or a part of one, over a slice of k.
struct SliceTile {
  const float* x;  // [kRows, num_k] rows kXStride apart; of bf16 products num_k is even
  float* sums;     // [kRows, kVectors * 16] rows kSumStride apart
  int64_t num_k;
  int64_t panel_stride;  // elements from one panel to the next
  bool is_first;         // the first slice of k starts from zero
};

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void add_products(F32x16 (&acc)[kRows][kVectors], const SliceTile& tile, const float* panel,
                                                int first_vector) {
  const int64_t panel_stride = tile.panel_stride;
  const auto load_b = [ panel, panel_stride, first_vector ](int64_t k, int v) __attribute__((always_inline)) {
    if constexpr (kVectors == 1) return load_panel(panel, k, first_vector);
    return load_panel(panel + v / kPanelVectors * panel_stride, k, v % kPanelVectors);
  };
  accumulate_tile<kRows, kVectors>(acc, tile.x, kXStride, 1, tile.num_k, load_b);
}
/// A pair's first element is the lower half of its word: one shift and one mask widen both.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void add_products(F32x16 (&acc)[kRows][kVectors], const SliceTile& tile, const bfloat16* panel,
                                                int first_vector) {
  for (int64_t pair = 0; pair < tile.num_k / 2; ++pair) {
    I32x16 words[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      words[v] = kVectors == 1 ? load_pairs(panel, pair, first_vector)
                               : load_pairs(panel + v / kPanelVectors * tile.panel_stride, pair, v % kPanelVectors);
    }
#pragma GCC unroll 2
    for (int element = 0; element < 2; ++element) {
      F32x16 b[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        b[v] = bit_cast_float(element == 0 ? words[v] << 16 : words[v] & I32x16(static_cast<int32_t>(0xffff0000U)));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32x16 x(tile.x[r * kXStride + 2 * pair + element]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(x, b[v], acc[r][v]);
      }
    }
  }
}

template <class T, int kRows, int kVectors>
void add_tile(const SliceTile& tile, const T* panel, int first_vector) {
  F32x16 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = tile.is_first ? F32x16(0.0f) : load(tile.sums + r * kSumStride + v * kLanes);
    }
  }
  add_products(acc, tile, panel, first_vector);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(tile.sums + r * kSumStride + v * kLanes, acc[r][v]);
  }
}

/// Adds a slice of k to the sums of `num_rows` <= kRows rows and all `num_panels` panels.
template <class T, int kRows>
void add_row_tile(SliceTile tile, int64_t num_rows, const T* panels, int64_t num_panels) {
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

/// Copies `count` elements to fp32, with zeros up to a multiple of 16.
template <class T>
void widen_row(const T* from, float* to, int64_t count) {
  for_each_vector(count, [=](int64_t i, auto lanes) { store(to + i, load(from + i, lanes)); });
}

/// Sums of some rows and panels, over all of k.
template <class T>
void sum_panels(const MatmulBlock& block, int64_t first_row, int64_t num_rows, int64_t first_panel, int64_t num_panels,
                float* x, float* sums) {
  const int64_t panel_stride = panel_bytes(block.type, block.k) / static_cast<int64_t>(sizeof(T));
  const T* panels = reinterpret_cast<const T*>(block.panels) + first_panel * panel_stride;
  for (int64_t k = 0; k < block.k; k += kSliceK) {
    const int64_t num_k = block.k - k < kSliceK ? block.k - k : kSliceK;
    for (int64_t r = 0; r < num_rows; ++r) {
      widen_row(reinterpret_cast<const T*>(block.x + (first_row + r) * block.x_stride) + k, x + r * kXStride, num_k);
    }
    // A slice of one or two panels stays in the first-level cache while all rows pass over it.
    for (int64_t p = 0; p < num_panels; p += 2) {
      const int64_t panels_here = num_panels - p < 2 ? num_panels - p : 2;
      for_each_row_tile<kTileRows>(num_rows, [&](int64_t row, int64_t rows) {
        const SliceTile tile{x + row * kXStride, sums + row * kSumStride + p * kPanelCols,
                             sizeof(T) == 2 ? num_k + num_k % 2 : num_k, panel_stride, k == 0};
        add_row_tile<T, kTileRows>(tile, rows, panels + p * panel_stride + k * kPanelCols, panels_here);
      });
    }
  }
}

template <class T>
void multiply(const MatmulBlock& block) {
  float* x = thread_scratch(kMaxRows * (kXStride + kSumStride));
  float* sums = x + kMaxRows * kXStride;
  for (int64_t first_panel = 0; first_panel < block.num_panels; first_panel += kMaxPanels) {
    const int64_t left = block.num_panels - first_panel, num_panels = left < kMaxPanels ? left : kMaxPanels;
    for_each_row_tile<kMaxRows>(block.num_rows, [&](int64_t row, int64_t rows) {
      sum_panels<T>(block, row, rows, first_panel, num_panels, x, sums);
      for (int64_t p = 0; p < num_panels; ++p) {
        finish_tile(block, {sums + p * kPanelCols, kSumStride, row, rows, first_panel + p});
      }
    });
  }
}

/// Sums of some rows and one panel of codes, over all of k. `group_sums` has the shape of `sums`.
template <class T>
void sum_coded_panel(const MatmulBlock& block, int64_t first_row, int64_t num_rows, const std::byte* panel, float* x,
                     float* sums, float* group_sums) {
  WidenedGroup widened;
  for (int64_t r = 0; r < num_rows; ++r) std::memset(sums + r * kSumStride, 0, kPanelCols * sizeof(float));
  for_each_group(block, panel, [&](const CodedGroup& group) {
    const int64_t left = block.k - group.first_k, num_k = left < group.num_k ? left : group.num_k;
    for (int64_t r = 0; r < num_rows; ++r) {
      widen_row(reinterpret_cast<const T*>(block.x + (first_row + r) * block.x_stride) + group.first_k, x + r * kXStride,
                num_k);
    }
    widen_group(group, widened);
    for_each_row_tile<kTileRows>(num_rows, [&](int64_t row, int64_t rows) {
      const SliceTile tile{x + row * kXStride, group_sums + row * kSumStride, num_k + num_k % 2, 0, true};
      add_row_tile<bfloat16, kTileRows>(tile, rows, widened.lines, 1);
    });
    add_scaled(group, group_sums, sums, kSumStride, num_rows);
  });
}

template <class T>
void multiply_coded(const MatmulBlock& block) {
  float* x = thread_scratch(kMaxRows * (kXStride + 2 * kSumStride));
  float* sums = x + kMaxRows * kXStride;
  const int64_t stride = panel_bytes(block.type, block.k);
  for_each_row_tile<kMaxRows>(block.num_rows, [&](int64_t row, int64_t rows) {
    for (int64_t p = 0; p < block.num_panels; ++p) {
      sum_coded_panel<T>(block, row, rows, block.panels + p * stride, x, sums, sums + kMaxRows * kSumStride);
      finish_tile(block, {sums, kSumStride, row, rows, p});
    }
  });
}

}  // namespace

void multiply_f32(const MatmulBlock& block) { multiply<float>(block); }
void multiply_bf16(const MatmulBlock& block) { multiply<bfloat16>(block); }
void multiply_e4m3(const MatmulBlock& block) {
  block.x_dtype == DType::kF32 ? multiply_coded<float>(block) : multiply_coded<bfloat16>(block);
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
