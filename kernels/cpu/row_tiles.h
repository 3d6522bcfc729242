#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/panel_layout.h"

// The loops that all product kernels share.

namespace ferry::FERRY_ISA_NAMESPACE {

/// Where a tile's rows of x lie: 64 bytes of row r and step s of k at data + r * stride + s * step.
struct TileRows {
  const std::byte* data;
  int64_t stride;             // bytes
  int64_t step = kLineBytes;  // likewise

  /// From step `first` of k on.
  TileRows from(int64_t first) const { return {data + first * step, stride, step}; }
};

/// Four bytes of a row: what a product instruction multiplies with each column.
[[gnu::always_inline]] inline int32_t load_word(const std::byte* x) {
  int32_t word;
  std::memcpy(&word, x, sizeof(word));
  return word;
}

/// Calls fn(first_row, tile_rows) for even pieces of at most kMaxRows rows: 17 rows are 9 + 8 rather than 16 + 1.
template <int kMaxRows, class Fn>
[[gnu::always_inline]] inline void for_each_row_tile(int64_t num_rows, Fn fn) {
  const int64_t num_tiles = (num_rows + kMaxRows - 1) / kMaxRows;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t row = num_rows * tile / num_tiles;
    fn(row, num_rows * (tile + 1) / num_tiles - row);
  }
}

/// Calls Tile<kRows>::run(args...) with kRows = `rows`, 1 ‥ kMaxRows, a compile-time constant: sums then stay in registers.
template <template <int> class Tile, int kMaxRows, class... Args>
[[gnu::always_inline]] inline void run_rows(int64_t rows, const Args&... args) {
  if constexpr (kMaxRows > 1) {
    if (rows < kMaxRows) return run_rows<Tile, kMaxRows - 1>(rows, args...);
  }
  Tile<kMaxRows>::run(args...);
}

// Weights stream from memory. Asking for them this far ahead keeps the memory busy across the ends of pages, where the
// hardware's own prefetcher stops. Panels that passes read ahead of have a distance for each processor (stream_distance.h).
inline constexpr int64_t kPrefetchBytes = 4096;

[[gnu::always_inline]] inline void prefetch_stream(const std::byte* line) { __builtin_prefetch(line + kPrefetchBytes, 0, 2); }

}  // namespace ferry::FERRY_ISA_NAMESPACE
