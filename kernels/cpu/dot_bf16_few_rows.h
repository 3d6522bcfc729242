#pragma once

#include "kernels/cpu/bf16_code_rows.h"
#include "kernels/cpu/bf16_key_weights.h"
#include "kernels/cpu/dot_bf16_sums.h"
#include "kernels/cpu/words.h"

// Scores and weights of one block of keys for up to 8 rows of the batch, as a step of decode has. Here lanes are keys, not
// rows: 16 rows would leave half of them idle. Keys are transposed in registers, four words of 16 keys at a time, on the
// processor's units for permutations, which products leave free. Every element is the same products, added in the same order,
// as where lanes are rows (dot_bf16_row_walk.h), and a weight depends on its score and its row's peak alone: the same bits.
//
//   scores   [rows, kKeyBlock] fp32
//   weights  [rows, kKeyBlock] bf16, zeros behind the last key up to whole 32
//
// Included only by files that are compiled for AVX-512 BF16.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kFewRows = 8;
constexpr int64_t kChunkCols = 8;  // of a key, that are transposed at a time: a lane's four words

/// 16 bytes of 16 rows: of quarter[i], lane group j holds row 4 j + i. rows[j] is row 4 j; rows are `stride` elements apart.
template <class T>
[[gnu::always_inline]] inline void load_quarters(const T* const (&rows)[4], int64_t stride, __m512i (&quarter)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto chunk = [&](int j) __attribute__((always_inline)) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(rows[j] + i * stride));
    };
    quarter[i] = _mm512_maskz_inserti32x4(0xffff, _mm512_zextsi128_si512(chunk(0)), chunk(1), 1);
    quarter[i] = _mm512_maskz_inserti32x4(0xffff, quarter[i], chunk(2), 2);
    quarter[i] = _mm512_maskz_inserti32x4(0xffff, quarter[i], chunk(3), 3);
  }
}

/// Columns 0 ‥ 7 of 16 rows as words of two: word w of row i is lane i of words[w]. Rows as in load_quarters().
[[gnu::always_inline]] inline void load_words(const uint16_t* const (&rows)[4], int64_t stride, __m512i (&words)[4]) {
  __m512i quarter[4];
  load_quarters(rows, stride, quarter);
  const auto low = [](__m512i a, __m512i b) __attribute__((always_inline)) {
    return _mm512_maskz_unpacklo_epi32(0xffff, a, b);
  };
  const auto high = [](__m512i a, __m512i b) __attribute__((always_inline)) {
    return _mm512_maskz_unpackhi_epi32(0xffff, a, b);
  };
  const __m512i low0 = low(quarter[0], quarter[1]), high0 = high(quarter[0], quarter[1]);
  const __m512i low1 = low(quarter[2], quarter[3]), high1 = high(quarter[2], quarter[3]);
  words[0] = _mm512_maskz_unpacklo_epi64(0xff, low0, low1);
  words[1] = _mm512_maskz_unpackhi_epi64(0xff, low0, low1);
  words[2] = _mm512_maskz_unpacklo_epi64(0xff, high0, high1);
  words[3] = _mm512_maskz_unpackhi_epi64(0xff, high0, high1);
}

/// Values that are asked for while their keys are multiplied.
struct WantedValues {
  const std::byte* const* runs;  // of 16 keys each
  int64_t run_chunks;            // chunks of a key's columns that 16 keys' values are asked for with
  int64_t chunk_bytes;           // of these with each chunk

  /// What is due with chunk `chunk` of the 32 keys from `key` on.
  [[gnu::always_inline]] void ask(int64_t key, int64_t chunk) const {
    const int64_t second = chunk < run_chunks ? 0 : 1;
    const std::byte* values = runs[key / kSide + second] + (chunk - second * run_chunks) * chunk_bytes;
    for (int64_t i = 0; i < chunk_bytes; i += kLine) __builtin_prefetch(values + i, 0, 3);
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes
};

/// Scores of kCount rows with `num_keys` keys, 16 of which follow each other from key_runs[0 ‥ ]; of the last 32, those behind
/// the last key are computed, too.
template <int64_t kKeyBlock>
struct KeyLanes {
  template <int kCount>
  struct Rows {
    [[gnu::noinline]] static void run(const HeadShape& shape, const uint16_t* const* key_runs, int64_t num_keys,
                                      const uint16_t* queries, const WantedValues& wanted, float* scores) {
      for (int64_t key = 0; key < num_keys; key += 2 * kSide) {
        const uint16_t* rows[2][4];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) rows[i / 4][i % 4] = key_runs[key / kSide + i / 4] + 4 * (i % 4) * shape.num_cols;
        __m512 sums[kCount][2];
#pragma GCC unroll 8
        for (int r = 0; r < kCount; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
        for (int64_t d = 0; d < shape.num_cols; d += kChunkCols) {
          __m512i words[2][4];
          load_words(rows[0], shape.num_cols, words[0]);
          load_words(rows[1], shape.num_cols, words[1]);
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i) rows[i / 4][i % 4] += kChunkCols;
          wanted.ask(key, d / kChunkCols);
          const uint16_t* query = queries + d / kPairCols * 2 * kTile + d % kPairCols / 2 * kPairCols;
#pragma GCC unroll 4
          for (int w = 0; w < 4; ++w) {
#pragma GCC unroll 8
            for (int r = 0; r < kCount; ++r) {
              const __m512i pair = broadcast_pair(query + w * kPairCols + 2 * r);
              add_products(sums[r][0], words[0][w], pair);
              add_products(sums[r][1], words[1][w], pair);
            }
          }
        }
#pragma GCC unroll 8
        for (int r = 0; r < kCount; ++r) {
          _mm512_store_ps(scores + r * kKeyBlock + key, sums[r][0]);
          _mm512_store_ps(scores + r * kKeyBlock + key + kSide, sums[r][1]);
        }
      }
    }
  };
};

/// The largest of 16 lanes; NaN only where all lanes of `values` are.
[[gnu::always_inline]] inline float largest_lane(__m512 values) {
  const auto turn = [](__m512 x, __m512 y) __attribute__((always_inline)) { return _mm512_maskz_max_ps(0xffff, x, y); };
  values = turn(values, _mm512_maskz_shuffle_f32x4(0xffff, values, values, 0x4e));
  values = turn(values, _mm512_maskz_shuffle_f32x4(0xffff, values, values, 0xb1));
  values = turn(values, _mm512_maskz_permute_ps(0xffff, values, 0x4e));
  return _mm512_cvtss_f32(turn(values, _mm512_maskz_permute_ps(0xffff, values, 0xb1)));
}

/// Turns a block's scores into weights, and updates peaks and alphas of `count` rows; what a row does not see weighs nothing.
/// num_visible(r) is how many of the `num_keys` row `r` sees. Returns whether any alpha is not one.
template <int64_t kKeyBlock>
struct RowWeights {
  const ScoreBlock& block;
  int64_t count;
  int64_t num_keys;
  float scale;

  template <class NumVisible>
  bool weigh(float* row_peak, NumVisible num_visible) const {
    alignas(64) float most[kSide] = {};
    for (int64_t r = 0; r < count; ++r) most[r] = find_most(r, num_visible(r));
    const __m512 old_peak = _mm512_load_ps(row_peak);
    const __m512 product = _mm512_load_ps(most) * _mm512_set1_ps(scale);
    const __m512 whole = _mm512_maskz_roundscale_ps(0xffff, product, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    const auto rows = static_cast<__mmask16>((1U << count) - 1);
    const __m512 peak = _mm512_mask_max_ps(old_peak, rows, whole, old_peak);
    _mm512_store_ps(row_peak, peak);
    const __m512 alpha = exp2_of_whole(old_peak - peak);
    _mm512_store_ps(block.row_alpha, alpha);
    for (int64_t r = 0; r < count; ++r) weigh_row(r, num_visible(r), row_peak[r]);
    return _mm512_cmp_ps_mask(alpha, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ) != 0;
  }

 private:
  /// The lanes of 16 keys from `key` on that a row sees.
  static __mmask16 lanes_of(int64_t key, int64_t num_visible) {
    const int64_t left = num_visible - key;
    return static_cast<__mmask16>(left >= kSide ? 0xffffU : left <= 0 ? 0U : (1U << left) - 1);
  }
  float find_most(int64_t r, int64_t num_visible) const {
    const float* scores = block.scores + r * kKeyBlock;
    __m512 most = _mm512_set1_ps(kLeastPeak);
    for (int64_t key = 0; key < num_keys; key += kSide)
      most = _mm512_mask_max_ps(most, lanes_of(key, num_visible), _mm512_load_ps(scores + key), most);
    return largest_lane(most);
  }
  void weigh_row(int64_t r, int64_t num_visible, float row_peak) const {
    const float* scores = block.scores + r * kKeyBlock;
    uint16_t* weights = block.weights + r * kKeyBlock;
    const __m512 factor = _mm512_set1_ps(scale), peak = _mm512_set1_ps(row_peak);
    const auto weight_of = [&](int64_t key) __attribute__((always_inline)) {
      const __m512 weight = exp2_to_round(_mm512_fmsub_ps(_mm512_load_ps(scores + key), factor, peak));
      return _mm512_maskz_mov_ps(lanes_of(key, num_visible), weight);
    };
    for (int64_t key = 0; key < num_keys; key += kKeyStep)
      _mm512_store_si512(weights + key, upper_halves(weight_of(key), weight_of(key + kSide)));
  }
};

/// Adds the weights of `count` rows to their sums, lane r those of row r: pairs of keys one after the other.
template <int64_t kKeyBlock>
void add_row_weights(const uint16_t* weights, int64_t count, int64_t num_keys, float* weight_sums) {
  __m512 sums = _mm512_load_ps(weight_sums);
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  for (int64_t key = 0; key < num_keys; key += kKeyStep) {
    Words words[kWords] = {};
    for (int64_t r = 0; r < count; ++r) words[r] = reinterpret_cast<Words>(_mm512_load_si512(weights + r * kKeyBlock + key));
    transpose(words);
    for (const Words& pair : words) add_products(sums, ones, reinterpret_cast<__m512i>(pair));
  }
  _mm512_store_ps(weight_sums, sums);
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
