#include <immintrin.h>

#include <array>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/e4m3_panels.h"
#include "kernels/cpu/integer_matmul.h"
#include "kernels/cpu/row_packer.h"

// Products with AMX tiles: 16 rows of 64 bytes each. A tile of x comes straight from its rows, a tile of weights is 16 lines of
// one half of a panel, and up to 32 rows x 2 halves of sums stay in four tiles while k passes.
//
// The instructions round fp32 sums to nearest even, treat denormals as zeros and sum every row by itself, in ascending k, so a
// row's result does not depend on how many there are.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kTileHeight = 16;
constexpr int64_t kBlockRows = 2 * kTileHeight;
constexpr int64_t kTileBytes = 64;                            // of a row in a tile
constexpr int64_t kStepBytes = 2 * kTileHeight * kLineBytes;  // of a panel: a tile of each half
constexpr int64_t kLineStride = 2 * kLineBytes;               // from a half's line to its next
constexpr int64_t kSumStride = kPanelCols * 4;                // bytes

// Tiles: 0 ‥ 3 sums [row tile][half], 4 and 5 rows of x, 6 and 7 the halves' weights.
constexpr TileShapes shapes_for(int64_t num_rows) {
  TileShapes shapes;
  const auto first = static_cast<uint8_t>(num_rows < kTileHeight ? num_rows : kTileHeight);
  const auto second = static_cast<uint8_t>(num_rows > kTileHeight ? num_rows - kTileHeight : 1);
  const uint8_t rows[8] = {first, first, second, second, first, second, kTileHeight, kTileHeight};
  for (int t = 0; t < 8; ++t) {
    shapes.row_bytes[t] = kTileBytes;
    shapes.rows[t] = rows[t];
  }
  return shapes;
}
constexpr std::array<TileShapes, kBlockRows + 1> make_all_shapes() {
  std::array<TileShapes, kBlockRows + 1> all;
  for (int64_t rows = 1; rows <= kBlockRows; ++rows) all[static_cast<std::size_t>(rows)] = shapes_for(rows);
  return all;
}
constinit const std::array<TileShapes, kBlockRows + 1> kShapes = make_all_shapes();

/// The tiles are this block's from here on; their rows change with configure().
class TileUse {
 public:
  TileUse() = default;
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;
  ~TileUse() { _tile_release(); }
  void configure(int64_t num_rows) {
    if (num_rows == num_rows_) return;
    _tile_loadconfig(&kShapes[static_cast<std::size_t>(num_rows)]);
    num_rows_ = num_rows;
  }

 private:
  int64_t num_rows_ = 0;
};

/// Asks for as much as a step of `panel` is.
template <Fetch kFetch>
[[gnu::always_inline]] inline void fetch_step(const std::byte* panel, LineFetch<kFetch>& fetch) {
  for (int64_t i = 0; i < kStepBytes; i += 2 * kLineBytes) fetch.next(panel + i);
}

struct Bf16 {
  template <bool kTwo>
  [[gnu::always_inline]] static void multiply() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwo) {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
};
struct Int8 {
  template <bool kTwo>
  [[gnu::always_inline]] static void multiply() {  // signed rows, unsigned weights
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    if constexpr (kTwo) {
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    }
  }
};

template <bool kTwo>
[[gnu::always_inline]] inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTwo) {
    _tile_zero(2);
    _tile_zero(3);
  }
}
template <bool kTwo>
[[gnu::always_inline]] inline void store_sums(void* sums) {
  auto* bytes = static_cast<std::byte*>(sums);
  _tile_stored(0, bytes, kSumStride);
  _tile_stored(1, bytes + kLineBytes, kSumStride);
  if constexpr (kTwo) {
    _tile_stored(2, bytes + kTileHeight * kSumStride, kSumStride);
    _tile_stored(3, bytes + kTileHeight * kSumStride + kLineBytes, kSumStride);
  }
  memory_barrier();
}

/// Adds one step of k: 64 bytes of every row of x times 16 lines of each half.
template <class Type, bool kTwo>
[[gnu::always_inline]] inline void add_step(const TileRows& x, int64_t step, const std::byte* lines) {
  const std::byte* rows = x.data + step * x.step;
  _tile_loadd(4, rows, x.stride);
  _tile_loadd(6, lines, kLineStride);
  _tile_loadd(7, lines + kLineBytes, kLineStride);
  if constexpr (kTwo) _tile_loadd(5, rows + kTileHeight * x.stride, x.stride);
  Type::template multiply<kTwo>();
}

/// sums = rows x panel.
template <class Type, bool kTwo, Fetch kFetch>
void multiply_panel(const TileRows& x, const std::byte* panel, int64_t num_steps, LineFetch<kFetch> fetch, void* sums) {
  zero_sums<kTwo>();
  for (int64_t step = 0; step < num_steps; ++step, panel += kStepBytes) {
    fetch_step(panel, fetch);
    add_step<Type, kTwo>(x, step, panel);
  }
  store_sums<kTwo>(sums);
}
template <class Type, Fetch kFetch>
void multiply_panel(int64_t rows, const TileRows& x, const std::byte* panel, int64_t num_steps, LineFetch<kFetch> fetch,
                    void* sums) {
  rows > kTileHeight ? multiply_panel<Type, true>(x, panel, num_steps, fetch, sums)
                     : multiply_panel<Type, false>(x, panel, num_steps, fetch, sums);
}

/// Two tiles of codes unfolded from an int4 panel, [16 words][2 halves][64]. Groups of 32 fill half a tile; the other half is
/// zeros, whatever x holds there.
class UnfoldedCodes {
 public:
  explicit UnfoldedCodes(int64_t group_size) : is_half_(group_size == kTileBytes / 2) {
    if (is_half_) std::memset(codes_, 0, sizeof(codes_));
  }
  /// Unfolds the step of k that starts at `k`; `lines` moves behind it.
  template <Fetch kFetch>
  const std::byte* unfold(int64_t k, const std::byte*& lines, LineFetch<kFetch>& fetch) {
    const bool is_second = is_half_ && k % kTileBytes != 0;
    std::byte* to = codes_[is_second ? 1 : 0];
    std::byte* word = to + (is_second ? kStepBytes / 2 : 0);
    const int64_t num_words = is_half_ ? kTileHeight / 2 : kTileHeight;
    const __m512i nibble = _mm512_set1_epi8(0xf);
    for (int64_t w = 0; w < num_words; w += 2, lines += kLineStride, word += 2 * kLineStride) {
      fetch.next(lines);
      for (int64_t h = 0; h < kLineStride; h += kLineBytes) {
        const __m512i folded = _mm512_load_si512(lines + h);
        _mm512_store_si512(word + h, _mm512_and_si512(folded, nibble));
        _mm512_store_si512(word + kLineStride + h, _mm512_and_si512(_mm512_srli_epi16(folded, 4), nibble));
      }
    }
    memory_barrier();
    return to;
  }
  int64_t step() const { return is_half_ ? kTileBytes / 2 : kTileBytes; }  // of k

 private:
  bool is_half_;
  alignas(64) std::byte codes_[2][kStepBytes];
};

[[gnu::always_inline]] inline I32x16 load_dots(const int32_t* dots) {
  I32x16 out;
  std::memcpy(&out, dots, sizeof(out));
  return out;
}

template <bool kWide, bool kTwo, Fetch kFetch>
void multiply_int4_panel(int64_t rows, IntegerTile in, LineFetch<kFetch> fetch) {
  UnfoldedCodes codes(in.group_size);
  alignas(64) int32_t dots[kBlockRows * kPanelCols];
  std::memset(in.sums, 0, static_cast<std::size_t>(rows * kSumStride));
  const std::byte* lines = in.panel;
  for (int64_t g = 0; g < in.num_groups(); ++g, lines += kGroupWordBytes<kWide>) {
    zero_sums<kTwo>();
    for (int64_t k = g * in.group_size; k < (g + 1) * in.group_size; k += codes.step()) {
      add_step<Int8, kTwo>(in.x, k / kTileBytes, codes.unfold(k, lines, fetch));
    }
    store_sums<kTwo>(dots);
    const GroupWords words[2] = {load_group_words<kWide>(lines, 0), load_group_words<kWide>(lines, 1)};
    for (int64_t r = 0; r < rows; ++r) {
      const auto x_sum = static_cast<float>(in.x_sums[r * in.num_groups() + g]);
      for (int64_t h = 0; h < 2; ++h) {
        const int64_t at = r * kPanelCols + h * kHalfCols;
        store(in.sums + at, add_group(load(in.sums + at), load_dots(dots + at), words[h], x_sum));
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* sums = in.sums + r * kPanelCols;
    for (int64_t h = 0; h < kPanelCols; h += kHalfCols) store(sums + h, load(sums + h) * in.x_scales[r]);
  }
}

// Two panels are multiplied in about the time that copying their rows takes.
using TilePacker = RowPacker<kBlockRows, 3>;

/// Calls run(rows, tile, fetch) for every tile of rows and every panel.
template <class Run>
void for_each_tile(const MatmulBlock& block, Run run) {
  TileUse tiles;
  const TilePacker packer(block, kTurnTiles);
  const auto begin = [&](int64_t row, int64_t rows, int64_t slot) { return packer.begin(row, rows, slot); };
  const auto run_tile = [&](int64_t rows, const IntegerTile& in, auto fetch) {
    tiles.configure(rows);
    memory_barrier();
    run(rows, in, fetch);
  };
  for_each_integer_tile<kBlockRows>(block, begin, run_tile,
                                    [&](const PanelPass& pass) { packer.prefetch(pass.next_row, pass.panel); });
}

template <bool kWide>
void multiply_int4_blocks(const MatmulBlock& block) {
  for_each_tile(block, [](int64_t rows, const IntegerTile& in, auto fetch) {
    rows > kTileHeight ? multiply_int4_panel<kWide, true>(rows, in, fetch) : multiply_int4_panel<kWide, false>(rows, in, fetch);
  });
}

}  // namespace

void multiply_bf16(const MatmulBlock& block) {
  TileUse tiles;
  const TilePacker packer(block, kTurnTiles);
  alignas(64) float sums[kBlockRows * kPanelCols];
  TileRows x[kTurnTiles];
  const auto begin = [&](int64_t row, int64_t rows, int64_t slot) { x[slot] = packer.begin(row, rows, slot); };
  for_each_pass<kBlockRows>(block, begin, [&](const PanelPass& pass, auto fetch) {
    tiles.configure(pass.num_rows);
    memory_barrier();
    multiply_panel<Bf16>(pass.num_rows, x[pass.slot], pass.lines, packer.num_steps(), fetch, sums);
    finish_tile(block, {sums, kPanelCols, pass.first_row, pass.num_rows, pass.panel});
    packer.prefetch(pass.next_row, pass.panel);
  });
}

void multiply_e4m3(const MatmulBlock& block) {
  constexpr int64_t kStepElements = kTileBytes / 2, kMostTiles = 4, kMostRows = kMostTiles * kBlockRows;
  TileUse tiles;
  const TilePacker packer(block, kMostTiles);
  WidenedGroup widened;
  alignas(64) float sums[kMostRows * kPanelCols], group_sums[kBlockRows * kPanelCols];
  const auto* lines = reinterpret_cast<const std::byte*>(widened.lines);
  const int64_t stride = panel_bytes(block.type, block.k);
  // Widening a group takes as long as multiplying a tile of rows by it: several tiles share it.
  for_each_row_tile<kMostRows>(block.num_rows, [&](int64_t first_row, int64_t num_rows) {
    TileRows x[kMostTiles];
    for_each_row_tile<kBlockRows>(num_rows, [&, slot = 0](int64_t row, int64_t rows) mutable {
      x[slot] = packer.begin(first_row + row, rows, slot);
      ++slot;
    });
    for (int64_t p = 0; p < block.num_panels; ++p) {
      std::memset(sums, 0, static_cast<std::size_t>(num_rows * kSumStride));
      for_each_group(block, block.panels + p * stride, [&](const CodedGroup& group) {
        widen_group(group, widened);
        const int64_t first_step = group.first_k / kStepElements, num_steps = group.num_k / kStepElements;
        for_each_row_tile<kBlockRows>(num_rows, [&, slot = 0](int64_t row, int64_t rows) mutable {
          tiles.configure(rows);
          memory_barrier();
          multiply_panel<Bf16>(rows, x[slot++].from(first_step), lines, num_steps, LineFetch<Fetch::kNothing>{}, group_sums);
          add_scaled(group, group_sums, sums + row * kPanelCols, kPanelCols, rows);
        });
      });
      finish_tile(block, {sums, kPanelCols, first_row, num_rows, p});
      packer.prefetch(first_row + num_rows, p);
    }
  });
}

void multiply_int8(const MatmulBlock& block) {
  alignas(64) int32_t dots[kBlockRows * kPanelCols];
  for_each_tile(block, [&](int64_t rows, const IntegerTile& in, auto fetch) {
    multiply_panel<Int8>(rows, in.x, in.panel, in.k / kTileBytes, fetch, dots);
    const std::byte* scales = in.panel + in.k * kPanelCols;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < 2; ++h) {
        const int64_t at = r * kPanelCols + h * kHalfCols;
        const I32x16 centred = load_dots(dots + at) - I32x16(kInt8Zero * in.x_sums[r]);
        store(in.sums + at, scale_int8(centred, scales + h * kHalfCols * 4, in.x_scales[r]));
      }
    }
  });
}

void multiply_int4(const MatmulBlock& block) {
  block.type.is_wide ? multiply_int4_blocks<true>(block) : multiply_int4_blocks<false>(block);
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
