#include <immintrin.h>

#include "kernels/cpu/integer_matmul.h"

// Integer products with AVX2: vpmaddubsw multiplies unsigned by signed bytes and adds pairs to 16 bits with saturation, so an
// int8 weight passes as |w| (up to 127) with its sign moved to the row's code: 2 * 127 * 127 fits. int4 codes fit as they are.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

// 2 rows x 4 quarters (8 columns each) of sums take 8 of the 16 registers.
constexpr int kMaddubsRows = 2;
constexpr int kQuarters = 4;
constexpr int kQuarterBytes = 32;

[[gnu::always_inline]] inline __m256i load_quarter(const std::byte* lines, int quarter) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(lines + quarter * kQuarterBytes));
}
/// acc + sums of four products of unsigned `a` and signed `b`.
[[gnu::always_inline]] inline __m256i add_products(__m256i acc, __m256i a, __m256i b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
/// The int32 sums of half `h` as lanes.
[[gnu::always_inline]] inline I32x16 half_lanes(const __m256i (&acc)[kQuarters], int h) {
  I32x16 out;
  out.part[0] = (RegI32)acc[2 * h];
  out.part[1] = (RegI32)acc[2 * h + 1];
  return out;
}

template <int kRows>
struct Int8Tile {
  static void run(const IntegerTile& in) {
    __m256i acc[kRows][kQuarters];
    for (int r = 0; r < kRows; ++r) {
      for (__m256i& sum : acc[r]) sum = _mm256_setzero_si256();
    }
    const __m256i sign_bit = _mm256_set1_epi8(-128);
    const std::byte* lines = in.panel;
    for (int64_t k = 0; k < in.k; k += 4, lines += 2 * kLineBytes) {
      prefetch_stream(lines);
      prefetch_stream(lines + kLineBytes);
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q) {
        const __m256i w = _mm256_xor_si256(load_quarter(lines, q), sign_bit);  // code - 128
        const __m256i magnitude = _mm256_abs_epi8(w);
        for (int r = 0; r < kRows; ++r) {
          const __m256i x = _mm256_set1_epi32(load_word(in.x.data + r * in.x.stride + k));
          acc[r][q] = add_products(acc[r][q], magnitude, _mm256_sign_epi8(x, w));
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) {
        store(in.sums + r * kPanelCols + h * kHalfCols,
              scale_int8(half_lanes(acc[r], h), lines + h * kHalfCols * 4, in.x_scales[r]));
      }
    }
  }
};

template <bool kWide>
struct Int4Tiles {
  template <int kRows>
  struct Tile;
};

template <bool kWide>
template <int kRows>
struct Int4Tiles<kWide>::Tile {
  /// Adds the products of one group to acc; `lines` moves to the group's words.
  [[gnu::always_inline]] static void dot_group(__m256i (&acc)[kRows][kQuarters], const std::byte* x, int64_t x_stride,
                                               int64_t group_size, const std::byte*& lines) {
    const __m256i nibble = _mm256_set1_epi8(0xf);
    for (int64_t k = 0; k < group_size; k += 8, lines += 2 * kLineBytes) {
      prefetch_stream(lines);
      prefetch_stream(lines + kLineBytes);
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q) {
        const __m256i folded = load_quarter(lines, q);
        const __m256i first = _mm256_and_si256(folded, nibble);
        const __m256i second = _mm256_and_si256(_mm256_srli_epi16(folded, 4), nibble);
        for (int r = 0; r < kRows; ++r) {
          acc[r][q] = add_products(acc[r][q], first, _mm256_set1_epi32(load_word(x + r * x_stride + k)));
          acc[r][q] = add_products(acc[r][q], second, _mm256_set1_epi32(load_word(x + r * x_stride + k + 4)));
        }
      }
    }
  }

  static void run(const IntegerTile& in) {
    for (int i = 0; i < kRows * kPanelCols; i += kLanes) store(in.sums + i, F32x16(0.0f));
    const std::byte* lines = in.panel;
    const int64_t num_groups = in.num_groups();
    for (int64_t g = 0; g < num_groups; ++g, lines += kGroupWordBytes<kWide>) {
      __m256i acc[kRows][kQuarters];
      for (int r = 0; r < kRows; ++r) {
        for (__m256i& sum : acc[r]) sum = _mm256_setzero_si256();
      }
      dot_group(acc, in.x.data + g * in.group_size, in.x.stride, in.group_size, lines);
      for (int h = 0; h < 2; ++h) {
        const GroupWords words = load_group_words<kWide>(lines, h);
        for (int r = 0; r < kRows; ++r) {
          float* sums = in.sums + r * kPanelCols + h * kHalfCols;
          const auto x_sum = static_cast<float>(in.x_sums[r * num_groups + g]);
          store(sums, add_group(load(sums), half_lanes(acc[r], h), words, x_sum));
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) {
        float* sums = in.sums + r * kPanelCols + h * kHalfCols;
        store(sums, load(sums) * in.x_scales[r]);
      }
    }
  }
};

}  // namespace

void multiply_int8(const MatmulBlock& block) {
  for_each_integer_tile<kMaddubsRows>(
      block, [](int64_t rows, const IntegerTile& tile, auto) { run_rows<Int8Tile, kMaddubsRows>(rows, tile); });
}
void multiply_int4(const MatmulBlock& block) {
  for_each_integer_tile<kMaddubsRows>(block, [&](int64_t rows, const IntegerTile& tile, auto) {
    block.type.is_wide ? run_rows<Int4Tiles<true>::Tile, kMaddubsRows>(rows, tile)
                       : run_rows<Int4Tiles<false>::Tile, kMaddubsRows>(rows, tile);
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
