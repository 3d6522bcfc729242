#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/matmul_block.h"
#include "kernels/cpu/row_tiles.h"

// How the tiles of a block's rows pass over its panels, and what they ask of the memory meanwhile.
//
// A tile of 12 rows multiplies a panel in about the time that the panel takes to come from memory. Where an expert has two to
// four tiles of rows, the first one alone would wait for the panel and the others would leave the memory idle; so they take
// turns at each panel, and while they multiply it, they share asking for the next one. More rows than that hide the memory's
// time anyhow: they pass tile by tile over all panels, so that a tile's rows stay in the first level of the cache.

namespace ferry::FERRY_ISA_NAMESPACE {

/// What a pass asks for: what lies ahead in its own panel, all of the next panel, half of that, or nothing, where other passes
/// at the same panel do it.
enum class Fetch { kAhead, kNext, kHalfOfNext, kNothing };

/// Asks for as many lines as a pass multiplies or, for half a panel, for half as many.
template <Fetch kFetch>
struct LineFetch {
  const std::byte* wanted = nullptr;  // kNext, kHalfOfNext: the first line of the next panel that is asked for
  int64_t distance = 0;               // kAhead: bytes from a line to the one that is asked for

  /// To be called for every two neighbouring lines, with the first one.
  [[gnu::always_inline]] void next(const std::byte* line) {
    if constexpr (kFetch == Fetch::kAhead) {
      __builtin_prefetch(line + distance, 0, 2);
      __builtin_prefetch(line + distance + kLineBytes, 0, 2);
    } else if constexpr (kFetch == Fetch::kNext) {
      __builtin_prefetch(wanted, 0, 2);
      __builtin_prefetch(wanted + kLineBytes, 0, 2);
      wanted += 2 * kLineBytes;
    } else if constexpr (kFetch == Fetch::kHalfOfNext) {
      __builtin_prefetch(wanted, 0, 2);
      wanted += kLineBytes;
    }
  }
};

/// One tile of rows against one panel.
struct PanelPass {
  int64_t first_row, num_rows;  // of the block
  int64_t slot;                 // of the tile among those that take turns
  int64_t panel;
  const std::byte* lines;  // of the panel
  int64_t next_row;        // of the block: the first whose tile has not begun
};

inline constexpr int64_t kTurnTiles = 6;  // take turns at most

/// Calls fn(LineFetch) with what tile `slot` out of `num_tiles` that take turns has to ask for at `panel`. The first panel is
/// asked for by its own first pass.
template <class Fn>
[[gnu::always_inline]] inline void with_fetch(const MatmulBlock& block, const PanelPass& pass, int64_t panel_stride, Fn fn) {
  const std::byte* next = pass.lines + panel_stride;
  if (pass.panel == 0 && pass.slot == 0) return fn(LineFetch<Fetch::kAhead>{.distance = block.stream_distance});
  if (pass.panel + 1 == block.num_panels || pass.slot > 1) return fn(LineFetch<Fetch::kNothing>{});
  if (pass.panel == 0) return fn(LineFetch<Fetch::kNext>{next});
  fn(LineFetch<Fetch::kHalfOfNext>{next + pass.slot * (panel_stride / kLineBytes / 2 * kLineBytes)});
}

/// Calls begin(first_row, num_rows, slot) for every tile of at most kTileRows rows before its first panel, and pass(PanelPass,
/// LineFetch) for every tile and panel. Tiles that take turns have slots of their own, others slot 0.
template <int64_t kTileRows, class Begin, class Pass>
[[gnu::always_inline]] inline void for_each_pass(const MatmulBlock& block, Begin begin, Pass pass) {
  const int64_t stride = panel_bytes(block.type, block.k);
  if (block.num_rows > kTileRows && block.num_rows <= kTurnTiles * kTileRows) {
    for_each_row_tile<kTileRows>(block.num_rows,
                                 [&, slot = int64_t{0}](int64_t row, int64_t rows) mutable { begin(row, rows, slot++); });
    for (int64_t p = 0; p < block.num_panels; ++p) {
      for_each_row_tile<kTileRows>(block.num_rows, [&, slot = int64_t{0}](int64_t row, int64_t rows) mutable {
        const PanelPass here{row, rows, slot, p, block.panels + p * stride, block.num_rows};
        with_fetch(block, here, stride, [&](auto fetch) { pass(here, fetch); });
        ++slot;
      });
    }
    return;
  }
  for_each_row_tile<kTileRows>(block.num_rows, [&](int64_t row, int64_t rows) {
    begin(row, rows, 0);
    for (int64_t p = 0; p < block.num_panels; ++p) {
      pass(PanelPass{row, rows, 0, p, block.panels + p * stride, row + rows},
           LineFetch<Fetch::kAhead>{.distance = block.stream_distance});
    }
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
