#pragma once

#include "kernels/cpu/bf16_attention.h"

// From the scores of a block of keys to their weights as bf16, for attention over the paged cache.
//
// A weight is 2^(c score - peak), c = head_dim^-0.5 log2(e), with the least whole number that is no smaller than any of the
// row's c scores so far as peak. So weights that were computed below a lower peak are scaled by a power of two, which is exact:
// the bf16 that a weight is rounded to, up to that power, depends on its own score alone, and neither on the order of keys nor
// on where blocks end. Sums of weights add what was rounded, so a row's weights add up to one. What rounding costs a column of
// the output is at most 2^-8 of the weighted mean of |value - output|: what bf16 values in the cache cost already.
//
// Included only by files that are compiled for one instruction set, with AVX-512 at least.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr float kLeastPeak = -0x1p127f;  // before the first key: a finite number, unlike what it stands for

/// What up to 32 rows have of some keys: O^T and the sum of weights as its last row, below a peak.
struct KeySums {
  float* sums;      // [HeadShape::sum_elements()]
  float* row_peak;  // [kRows]

  static int64_t size(const HeadShape& shape) { return shape.sum_elements() + kRows; }
  KeySums(const HeadShape& shape, float* memory) : sums(memory), row_peak(memory + shape.sum_elements()) {}

  void clear(const HeadShape& shape) const {
    std::memset(sums, 0, static_cast<std::size_t>(shape.sum_elements()) * sizeof(float));
    for (int64_t r = 0; r < kRows; r += kSide) _mm512_store_ps(row_peak + r, _mm512_set1_ps(kLeastPeak));
  }
};

/// Scores and weights of one block of keys and 32 rows.
struct ScoreBlock {
  float* scores;       // [keys of a block, kRows]
  uint16_t* weights;   // [steps of a block][2] tiles of [pair of keys, row, 2]
  float* row_alpha;    // [kRows] what this block's peak makes of sums below the last one
  int32_t* row_limit;  // [kRows] last visible key, relative to the block
};

[[gnu::always_inline]] inline __m512 exp2_of_whole(__m512 x) { return _mm512_maskz_scalef_ps(0xffff, _mm512_set1_ps(1.0f), x); }

/// 2^x within 7.4e-6 of it, and half of the last bit that bf16 keeps: what is left without the lower 16 bits is 2^x to
/// nearest, exactly 1 for 0 and 0 for minus infinity. 2^x = 2^n 2^f with n the next lower integer, 2^f = 1 + f q(f), q through
/// (2^f - 1) / f at the Chebyshev nodes of [0, 1]; 2^f lies between 1 and 2, where that half is 2^-8.
[[gnu::always_inline]] inline __m512 exp2_to_round(__m512 x) {
  const __m512 f = _mm512_maskz_reduce_ps(0xffff, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.0127631137f), f, _mm512_set1_ps(0.053441029f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.240647048f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69313401f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.00390625f));
  return _mm512_maskz_scalef_ps(0xffff, p, x);
}

/// Two keys' weights of 16 rows as pairs of bf16, without the lower bits.
[[gnu::always_inline]] inline __m512i pack_weights(__m512 first, __m512 second) {
  const __m512i low = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(first), 16);
  return _mm512_mask_mov_epi16(low, 0xaaaaaaaaU, _mm512_castps_si512(second));
}

/// Turns the scores of a block into weights, and updates peak and alpha of 16 rows. Keys behind the last, up to a whole step,
/// weigh nothing; nor do, if kMasked, those that a row does not see. Returns whether any alpha is not one.
template <bool kMasked>
bool weigh_keys(const ScoreBlock& block, float* row_peak, int64_t half, int64_t num_keys, float scale) {
  const int64_t lanes = half * kSide;
  const float* scores = block.scores + lanes;
  const __m512 factor = _mm512_set1_ps(scale), old_peak = _mm512_load_ps(row_peak + lanes);
  const __m512i limit = kMasked ? _mm512_load_si512(block.row_limit + lanes) : __m512i{};
  const __m512 most = find_max<kMasked>(scores, num_keys, _mm512_set1_ps(kLeastPeak), limit) * factor;
  const __m512 whole = _mm512_maskz_roundscale_ps(0xffff, most, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  const __m512 peak = _mm512_maskz_max_ps(0xffff, whole, old_peak);
  _mm512_store_ps(row_peak + lanes, peak);
  const __m512 alpha = exp2_of_whole(old_peak - peak);
  _mm512_store_ps(block.row_alpha + lanes, alpha);
  const auto weight_of = [&](int64_t j) __attribute__((always_inline)) {
    const __m512 weight = exp2_to_round(_mm512_fmsub_ps(_mm512_load_ps(scores + j * kRows), factor, peak));
    if constexpr (kMasked) return _mm512_maskz_mov_ps(is_visible(j, limit), weight);
    return weight;
  };
  const auto place_of = [&](int64_t key) __attribute__((always_inline)) { return block.weights + pair_offset(key, half); };
  int64_t j = 0;
  for (; j + 1 < num_keys; j += 2) _mm512_store_si512(place_of(j), pack_weights(weight_of(j), weight_of(j + 1)));
  if (j < num_keys) {
    _mm512_store_si512(place_of(j), pack_weights(weight_of(j), _mm512_setzero_ps()));
    j += 2;
  }
  for (; j % kKeyStep != 0; j += 2) _mm512_store_si512(place_of(j), _mm512_setzero_si512());
  return _mm512_cmp_ps_mask(alpha, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ) != 0;
}

/// a keep + b add, of powers of two: one rounding.
[[gnu::always_inline]] inline __m512 scaled_sum(__m512 a, __m512 keep, __m512 b, __m512 add) {
  return _mm512_fmadd_ps(a, keep, _mm512_mul_ps(b, add));
}

/// Adds what rows have of later keys to what they have of those before, O as columns.
inline void fold_columns(const HeadShape& shape, int64_t num_rows, const KeySums& later, const KeySums& to) {
  for (int64_t lanes = 0; lanes < num_rows; lanes += kSide) {
    const __m512 peak = _mm512_load_ps(to.row_peak + lanes), later_peak = _mm512_load_ps(later.row_peak + lanes);
    const __m512 new_peak = _mm512_maskz_max_ps(0xffff, later_peak, peak);
    const __m512 keep = exp2_of_whole(peak - new_peak), add = exp2_of_whole(later_peak - new_peak);
    _mm512_store_ps(to.row_peak + lanes, new_peak);
    for (int64_t d = 0; d < shape.num_cols + 1; ++d) {
      float* sum = to.sums + d * kRows + lanes;
      _mm512_store_ps(sum, scaled_sum(_mm512_load_ps(sum), keep, _mm512_load_ps(later.sums + d * kRows + lanes), add));
    }
  }
}

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
