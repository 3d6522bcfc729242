#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/words.h"

// What attention is made of where a unit multiplies bf16, within segments (bf16_segment_attention.h) as over the paged cache
// (bf16_cached_attention.h). All is transposed, so that a register's lanes and a tile's columns are rows of the batch and no
// sum runs across them:
//
//   S^T [keys, 32 rows] = K Q^T;   P = 2^(c S - c max) as bf16;   O^T [head_dim, 32 rows] = alpha O^T + V^T P
//
// with c = head_dim^-0.5 log2(e). A unit multiplies tiles of 16 rows and 16 words, each word two columns or two keys: K as rows
// of keys, V^T as rows of columns, Q^T and P as rows of words with a word for each row of the batch. It has
//
//   kKeyBlock          keys between two updates of the maximum, a multiple of 32: S and P of a block stay in the cache
//   a constructor      makes the unit this thread's until it is destroyed
//   multiply_keys      S^T of `num_steps` times 32 keys
//   multiply_values    O^T += V^T P of the same
//
// with kHalves 1 or 2: as many times 16 rows of the batch are computed. Whichever it is, the products of an element of S or O
// are the same, added in the same order.
//
// Included only by files that are compiled for one instruction set, with AVX-512 at least.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kSide = 16;                 // rows and fp32 columns of a tile
constexpr int64_t kPairCols = 32;             // bf16 columns of a tile
constexpr int64_t kTile = kSide * kPairCols;  // bf16 elements
constexpr int64_t kRows = 32;                 // rows of the batch at a time: two tiles
constexpr int64_t kKeyStep = 32;              // keys that one tile of V^T holds
constexpr int64_t kMaxHeadDim = 256;

/// Sizes of one head's tiles.
struct HeadShape {
  explicit HeadShape(int64_t head_dim)
      : num_cols(head_dim), k_tiles((head_dim + kPairCols - 1) / kPairCols), d_tiles((head_dim + kSide) / kSide) {}

  int64_t num_cols;  // head_dim
  int64_t k_tiles;   // of a row of K
  int64_t d_tiles;   // of a column of V^T, which has one more row than head_dim: ones, whose sum is that of the weights

  int64_t key_step_elements() const { return 2 * k_tiles * kTile; }  // [2 halves of the step][k_tiles] tiles of [key, column]
  int64_t value_step_elements() const { return d_tiles * kTile; }    // [d_tiles] tiles of [column, key]
  int64_t query_elements() const { return 2 * k_tiles * kTile; }     // [k_tiles][2] tiles of [pair of columns, row, 2]
  int64_t sum_elements() const { return d_tiles * kSide * kRows; }   // [d_tiles * 16, kRows] O^T before the division
};

/// Cuts a thread's scratch memory into pieces of whole cache lines.
class ScratchPieces {
 public:
  explicit ScratchPieces(int64_t num_floats) : next_(thread_scratch(num_floats)) {}
  float* take(int64_t count) {
    float* piece = next_;
    next_ += count;
    return piece;
  }
  uint16_t* take_bf16(int64_t count) { return reinterpret_cast<uint16_t*>(take(count / 2)); }

 private:
  float* next_;
};

/// The lowest bits of a mask, as many as there are columns from `d` on.
[[gnu::always_inline]] inline uint32_t mask_from(int64_t d, int64_t num_cols) {
  return num_cols - d >= 32 ? 0xffffffffU : num_cols <= d ? 0U : (1U << (num_cols - d)) - 1;
}

// A masked load from an address that nobody has costs the processor some 70 ns, though it loads no lane (seen on Zen 5: 14 us
// for the 24 rows that 8 queries leave open). So where a row is missing, no lane of the first one is loaded.

/// Copies the rows `row(key)` of one head's keys into tiles, in whole steps; what lies behind the last key or column is zeros.
template <class RowOf>
void load_keys(const HeadShape& shape, int64_t num_keys, RowOf row, uint16_t* tiles) {
  const int64_t num_rows = (num_keys + kKeyStep - 1) / kKeyStep * kKeyStep;
  for (int64_t key = 0; key < num_rows; ++key) {
    const uint16_t* from = row(key < num_keys ? key : 0);
    uint16_t* to = tiles + key / kSide * shape.k_tiles * kTile + key % kSide * kPairCols;
    for (int64_t d = 0; d < shape.k_tiles * kPairCols; d += kPairCols, to += kTile) {
      const uint32_t mask = key < num_keys ? mask_from(d, shape.num_cols) : 0U;
      _mm512_store_si512(to, _mm512_maskz_loadu_epi16(mask, from + d));
    }
  }
}

/// Columns [d, d + 16) of a row of values, each widened to a word; zeros behind the last.
[[gnu::always_inline]] inline Words load_wide(const uint16_t* row, int64_t d, int64_t head_dim) {
  const __m256i cols = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask_from(d, head_dim)), row + d);
  return reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, cols));
}

/// Transposes the rows `row(key)` of one head's values, in words of two keys and whole steps. Behind the last column is one of
/// ones.
template <class RowOf>
void load_values(const HeadShape& shape, int64_t num_keys, RowOf row, uint16_t* all_tiles) {
  constexpr uint16_t kOne = 0x3f80;
  for (int64_t key = 0; key < num_keys; key += kKeyStep) {
    uint16_t* tiles = all_tiles + key / kKeyStep * shape.value_step_elements();
    for (int64_t d = 0; d < shape.d_tiles * kSide; d += kSide) {
      Words rows[kSide];
      for (int64_t i = 0; i < kSide; ++i) {
        const auto load_key = [&](int64_t k) { return k < num_keys ? load_wide(row(k), d, shape.num_cols) : Words{}; };
        rows[i] = load_key(key + 2 * i) | load_key(key + 2 * i + 1) << 16;
      }
      transpose(rows);
      std::memcpy(tiles + d * kKeyStep, rows, sizeof(rows));
    }
    for (int64_t k = 0; k < kKeyStep; ++k) tiles[shape.num_cols * kKeyStep + k] = key + k < num_keys ? kOne : uint16_t{0};
  }
}

/// The queries row(0 ‥ count - 1), transposed in words of two columns; rows behind the last are zeros.
template <class RowOf>
void load_queries(const HeadShape& shape, int64_t count, RowOf row, uint16_t* tiles) {
  const uint16_t* from[kRows];
  for (int64_t r = 0; r < kRows; ++r) from[r] = row(r < count ? r : 0);
  for (int64_t half = 0; half < kRows; half += kSide) {
    for (int64_t t = 0; t < shape.k_tiles; ++t) {
      Words rows[kSide];
      for (int64_t r = 0; r < kSide; ++r) {
        const uint32_t mask = half + r < count ? mask_from(t * kPairCols, shape.num_cols) : 0U;
        rows[r] = reinterpret_cast<Words>(_mm512_maskz_loadu_epi16(mask, from[half + r] + t * kPairCols));
      }
      transpose(rows);
      std::memcpy(tiles + (2 * t + half / kSide) * kTile, rows, sizeof(rows));
    }
  }
}

/// Where in a block's weights, [steps][2] tiles of [pair of keys, row, 2], the pair of keys is whose first is `key`, for one
/// half of the rows.
[[gnu::always_inline]] inline int64_t pair_offset(int64_t key, int64_t half) {
  return (key / kKeyStep * 2 + half) * kTile + key % kKeyStep / 2 * kPairCols;
}

/// The rows whose last visible key is not before key `j`.
[[gnu::always_inline]] inline __mmask16 is_visible(int64_t j, __m512i limit) {
  return _mm512_cmp_epi32_mask(_mm512_set1_epi32(static_cast<int>(j)), limit, _MM_CMPINT_LE);
}

/// The largest score of each of 16 rows, `so_far` included; if kMasked, of the keys up to the row's `limit`. Four running
/// maxima hide the latency of each.
template <bool kMasked>
__m512 find_max(const float* scores, int64_t num_keys, __m512 so_far, __m512i limit) {
  __m512 largest[4] = {so_far, so_far, so_far, so_far};
  const auto add = [&](__m512 & to, int64_t j) __attribute__((always_inline)) {
    const __m512 score = _mm512_load_ps(scores + j * kRows);
    if constexpr (kMasked) {
      to = _mm512_mask_max_ps(to, is_visible(j, limit), score, to);
    } else {
      to = _mm512_maskz_max_ps(0xffff, score, to);
    }
  };
  int64_t j = 0;
  for (; j + 4 <= num_keys; j += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) add(largest[i], j + i);
  }
  for (; j < num_keys; ++j) add(largest[0], j);
  const __m512 even = _mm512_maskz_max_ps(0xffff, largest[0], largest[2]);
  return _mm512_maskz_max_ps(0xffff, even, _mm512_maskz_max_ps(0xffff, largest[1], largest[3]));
}

/// O^T = alpha O^T.
template <int kHalves>
void rescale_sums(const HeadShape& shape, const float* row_alpha, float* sums) {
  __m512 alpha[kHalves];
  for (int half = 0; half < kHalves; ++half) alpha[half] = _mm512_loadu_ps(row_alpha + half * kSide);
  for (int64_t d = 0; d < shape.num_cols + 1; ++d) {
    for (int half = 0; half < kHalves; ++half) {
      float* to = sums + d * kRows + half * kSide;
      _mm512_store_ps(to, _mm512_load_ps(to) * alpha[half]);
    }
  }
}

/// Divides the sums by those of the weights, and writes `count` rows to row(0 ‥ count - 1): transposes words of two columns.
template <class RowOf>
void store_output(const HeadShape& shape, const float* sums, int64_t count, RowOf row) {
  const int64_t head_dim = shape.num_cols;
  for (int64_t half = 0; half < count; half += kSide) {
    const __m512 row_sum = _mm512_load_ps(sums + head_dim * kRows + half);
    const auto load_col = [&](int64_t d) __attribute__((always_inline)) {
      const __m512 mean = d < head_dim ? _mm512_load_ps(sums + d * kRows + half) / row_sum : _mm512_setzero_ps();
      return reinterpret_cast<Words>(detail::round_bfloat16(reinterpret_cast<RegF32>(mean)) >> 16);
    };
    for (int64_t first_d = 0; first_d < head_dim; first_d += kPairCols) {
      Words rows[kSide];
      for (int64_t i = 0; i < kSide; ++i) rows[i] = load_col(first_d + 2 * i) | load_col(first_d + 2 * i + 1) << 16;
      transpose(rows);
      for (int64_t r = half; r < count && r < half + kSide; ++r) {
        _mm512_mask_storeu_epi16(row(r) + first_d, mask_from(first_d, head_dim), reinterpret_cast<__m512i>(rows[r - half]));
      }
    }
  }
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
