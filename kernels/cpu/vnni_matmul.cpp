#include <immintrin.h>

#include "kernels/cpu/integer_matmul.h"
#include "kernels/cpu/row_packer.h"

// Integer products with AVX-512 VNNI: vpdpbusd adds four products of an unsigned code (the weight) and a signed one (the row)
// to each of 16 int32 sums.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// sums += products. In assembler, as g++ 12 moves the sums of a tile through memory around the intrinsic (a third of the
/// speed).
[[gnu::always_inline]] inline void add_products(__m512i& sums, __m512i codes, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(x));
}
[[gnu::always_inline]] inline I32x16 as_lanes(__m512i v) {
  I32x16 out;
  out.part[0] = (RegI32)v;
  return out;
}

/// 12 rows x 2 halves of int32 sums are 24 registers.
constexpr int kInt8Rows = 12;

template <int kRows>
struct Int8Tile {
  template <Fetch kFetch>
  [[gnu::always_inline]] static void run(const IntegerTile& in, LineFetch<kFetch> fetch) {
    __m512i acc[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_set1_epi32(-kInt8Zero * in.x_sums[r]);
    const std::byte* line = in.panel;
    for (int64_t step = 0; step < in.k / kLineBytes; ++step) {
      const std::byte* rows = in.x.data + step * in.x.step;
      for (int64_t at = 0; at < kLineBytes; at += 4, line += 2 * kLineBytes) {
        fetch.next(line);
        const __m512i low = _mm512_load_si512(line), high = _mm512_load_si512(line + kLineBytes);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          const __m512i x = _mm512_set1_epi32(load_word(rows + r * kLineBytes + at));
          add_products(acc[r][0], low, x);
          add_products(acc[r][1], high, x);
        }
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) {
        store(in.sums + r * kPanelCols + h * kHalfCols,
              scale_int8(as_lanes(acc[r][h]), line + h * kHalfCols * 4, in.x_scales[r]));
      }
    }
  }
};

/// 6 rows x 2 halves of int32 and of fp32 sums are 24 registers; four take codes.
constexpr int kInt4Rows = 6;

template <bool kWide>
struct Int4Tiles {
  template <int kRows>
  struct Tile;
};

template <bool kWide>
template <int kRows>
struct Int4Tiles<kWide>::Tile {
  /// Adds the products of the 32 codes at k to acc; `line` moves behind them.
  template <Fetch kFetch>
  [[gnu::always_inline]] static void dot_32(__m512i (&acc)[kRows][2], const TileRows& x, int64_t k, const std::byte*& line,
                                            LineFetch<kFetch>& fetch) {
    const __m512i nibble = _mm512_set1_epi8(0xf);
    const std::byte* rows = x.data + k / kLineBytes * x.step + k % kLineBytes;
    for (int64_t at = 0; at < 32; at += 8, line += 2 * kLineBytes) {
      fetch.next(line);
      const __m512i folded[2] = {_mm512_load_si512(line), _mm512_load_si512(line + kLineBytes)};
      __m512i codes[2][2];  // [word][half]
      for (int h = 0; h < 2; ++h) {
        codes[0][h] = _mm512_and_si512(folded[h], nibble);
        codes[1][h] = _mm512_and_si512(_mm512_srli_epi16(folded[h], 4), nibble);
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        for (int w = 0; w < 2; ++w) {
          const __m512i word = _mm512_set1_epi32(load_word(rows + r * kLineBytes + at + 4 * w));
          add_products(acc[r][0], codes[w][0], word);
          add_products(acc[r][1], codes[w][1], word);
        }
      }
    }
  }

  template <Fetch kFetch>
  [[gnu::always_inline]] static void run(const IntegerTile& in, LineFetch<kFetch> fetch) {
    F32x16 sums[kRows][2];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = F32x16(0.0f);
    const std::byte* line = in.panel;
    const int64_t num_groups = in.num_groups();
    for (int64_t g = 0; g < num_groups; ++g, line += kGroupWordBytes<kWide>) {
      __m512i acc[kRows][2];
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_si512();
      for (int64_t k = g * in.group_size; k < (g + 1) * in.group_size; k += 32) dot_32(acc, in.x, k, line, fetch);
      for (int h = 0; h < 2; ++h) {
        const GroupWords words = load_group_words<kWide>(line, h);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const auto x_sum = static_cast<float>(in.x_sums[r * num_groups + g]);
          sums[r][h] = add_group(sums[r][h], as_lanes(acc[r][h]), words, x_sum);
        }
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) store(in.sums + r * kPanelCols + h * kHalfCols, sums[r][h] * in.x_scales[r]);
    }
  }
};

/// Every tile of rows against every panel.
template <template <int> class Tile, int kTileRows>
void multiply(const MatmulBlock& block) {
  const RowPacker<kTileRows, 0> packer(block, kTurnTiles);
  for_each_integer_tile<kTileRows>(
      block, [&](int64_t row, int64_t rows, int64_t slot) { return packer.begin(row, rows, slot); },
      [](int64_t rows, const IntegerTile& tile, auto fetch)
          __attribute__((always_inline)) { run_rows<Tile, kTileRows>(rows, tile, fetch); },
      [&](const PanelPass& pass) { packer.prefetch(pass.next_row, pass.panel); });
}

}  // namespace

void multiply_int8(const MatmulBlock& block) { multiply<Int8Tile, kInt8Rows>(block); }
void multiply_int4(const MatmulBlock& block) {
  block.type.is_wide ? multiply<Int4Tiles<true>::Tile, kInt4Rows>(block) : multiply<Int4Tiles<false>::Tile, kInt4Rows>(block);
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
