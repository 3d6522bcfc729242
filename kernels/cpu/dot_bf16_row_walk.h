#pragma once

#include "kernels/cpu/bf16_cached_attention.h"
#include "kernels/cpu/dot_bf16_sums.h"
#include "kernels/cpu/row_tiles.h"

// A walk (bf16_cached_attention.h) that multiplies the cache's own rows with AVX-512 BF16, for heads of whole 32 columns and
// blocks of the cache of whole 16 tokens. O is kept as rows: the 32 of a piece, head_dim apart, where a tile's columns would
// be; of 32 columns registers hold 0 ‥ 3, 8 ‥ 11, 16 ‥ 19 and 24 ‥ 27, as rows of two keys interleave, and the others.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// Keys and values of a block, where they are: rows of head_dim columns, 16 of which follow each other.
template <int64_t kKeyBlock>
struct CacheRows {
  const uint16_t* keys[kKeyBlock / kSide];       // of 16 keys each
  const uint16_t* values[kKeyBlock / kSide];     // likewise
  const uint16_t* next_keys[kKeyBlock / kSide];  // of the next block
};

/// 32 columns of a block's values, in pairs of keys.
struct ValueSlice {
  const uint16_t* const* rows;       // of 16 keys each, where the cache has them
  int64_t stride;                    // elements from a row to the next
  const uint16_t* pairs;             // [pairs of keys][2][32], as load() gives them; or null
  const uint16_t* const* next_keys;  // for each 16 keys, 1 KB that is asked for meanwhile; or null

  /// Both registers of a pair of rows; without the second, twice the first, which then weighs nothing.
  [[gnu::always_inline]] static void load(const uint16_t* row, int64_t stride, bool has_second, __m512i& low, __m512i& high) {
    const __m512i even = _mm512_loadu_si512(row), odd = _mm512_loadu_si512(row + (has_second ? stride : 0));
    low = _mm512_unpacklo_epi16(even, odd);
    high = _mm512_unpackhi_epi16(even, odd);
  }
};

/// Adds 32 columns of values, times the weights of kCount rows of the batch in one half of a piece.
template <bool kPacked>
struct ValueCols {
  template <int kCount>
  struct Rows {
    /// `weights` are those of the first row; `to` its sums, rows of which are slice.stride apart.
    static void run(const ValueSlice& slice, int64_t num_keys, const uint16_t* weights, float* to) {
      __m512 sums[kCount][2];
#pragma GCC unroll 8
      for (int r = 0; r < kCount; ++r) {
        sums[r][0] = _mm512_load_ps(to + r * slice.stride);
        sums[r][1] = _mm512_load_ps(to + r * slice.stride + kSide);
      }
      for (int64_t key = 0; key < num_keys; key += kSide) {
        const uint16_t* values = kPacked ? slice.pairs + key * kPairCols : slice.rows[key / kSide];
        const uint16_t* pair = weights + pair_offset(key, 0);
        const int64_t count = num_keys - key < kSide ? num_keys - key : kSide;
        for (int64_t j = 0; j < count; j += 2, pair += kPairCols) {
          if (slice.next_keys != nullptr) {
            __builtin_prefetch(slice.next_keys[key / kSide] + j * kPairCols, 0, 3);
            __builtin_prefetch(slice.next_keys[key / kSide] + (j + 1) * kPairCols, 0, 3);
          }
          __m512i low, high;
          if constexpr (kPacked) {
            low = _mm512_load_si512(values + j * kPairCols);
            high = _mm512_load_si512(values + (j + 1) * kPairCols);
          } else {
            ValueSlice::load(values + j * slice.stride, slice.stride, j + 1 < count, low, high);
          }
#pragma GCC unroll 8
          for (int r = 0; r < kCount; ++r) {
            const __m512i weight = broadcast_pair(pair + 2 * r);
            add_products(sums[r][0], low, weight);
            add_products(sums[r][1], high, weight);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kCount; ++r) {
        _mm512_store_ps(to + r * slice.stride, sums[r][0]);
        _mm512_store_ps(to + r * slice.stride + kSide, sums[r][1]);
      }
    }
  };
};

template <int64_t kKeyBlock>
class DotRowWalk {
 public:
  static constexpr bool kCopiesKeys = false;

  DotRowWalk(const GroupRows& rows, const CachedWorkspace& w, float scale) : rows_(rows), w_(w), scale_(scale) {}

  template <class SumsOf>
  void attend(int64_t first, int64_t end, SumsOf sums_of) const {
    CacheRows<kKeyBlock> cache;
    find_rows(first, end, cache.keys, cache.values);
    for (int64_t key = first; key < end; key += kKeyBlock) {
      const int64_t num_keys = end - key < kKeyBlock ? end - key : kKeyBlock;
      const uint16_t* next_values[kKeyBlock / kSide];
      find_rows(key + kKeyBlock < end ? key + kKeyBlock : key, end, cache.next_keys, next_values);
      if (packs()) pack_values(cache, num_keys);
      for (int64_t piece = 0; piece < rows_.num_pieces(); ++piece) {
        const int64_t count = rows_.num_visible(piece, key, num_keys);
        if (count <= 0) continue;
        if (rows_.piece_rows(piece) <= kSide) {
          attend_block<1>(cache, piece, sums_of(piece), key, count);
        } else {
          attend_block<2>(cache, piece, sums_of(piece), key, count);
        }
      }
      std::memcpy(cache.keys, cache.next_keys, sizeof(cache.keys));
      std::memcpy(cache.values, next_values, sizeof(cache.values));
    }
  }

  static void fold(const HeadShape& shape, int64_t count, const KeySums& later, const KeySums& to) {
    float keep[kRows], add[kRows];
    float* sum = to.sums + shape.num_cols * kRows;  // of the weights
    const float* later_sum = later.sums + shape.num_cols * kRows;
    for (int64_t r = 0; r < count; r += kSide) {
      const __m512 peak = _mm512_load_ps(to.row_peak + r), later_peak = _mm512_load_ps(later.row_peak + r);
      const __m512 new_peak = _mm512_maskz_max_ps(0xffff, later_peak, peak);
      const __m512 kept = exp2_of_whole(peak - new_peak), added = exp2_of_whole(later_peak - new_peak);
      _mm512_storeu_ps(keep + r, kept);
      _mm512_storeu_ps(add + r, added);
      _mm512_store_ps(to.row_peak + r, new_peak);
      _mm512_store_ps(sum + r, scaled_sum(_mm512_load_ps(sum + r), kept, _mm512_load_ps(later_sum + r), added));
    }
    for (int64_t i = 0; i < count * shape.num_cols; i += kSide) {
      const __m512 kept = _mm512_set1_ps(keep[i / shape.num_cols]), added = _mm512_set1_ps(add[i / shape.num_cols]);
      _mm512_store_ps(to.sums + i, scaled_sum(_mm512_load_ps(to.sums + i), kept, _mm512_load_ps(later.sums + i), added));
    }
  }

  static void store(const GroupRows& rows, int64_t piece, const KeySums& sums) {
    const int64_t head_dim = rows.shape().num_cols;
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (int64_t r = 0; r < rows.piece_rows(piece); ++r) {
      const __m512 weight_sum = _mm512_set1_ps(sums.sums[head_dim * kRows + r]);
      bfloat16* out = rows.out_row(piece, r);
      for (int64_t d = 0; d < head_dim; d += kPairCols) {
        const float* from = sums.sums + r * head_dim + d;
        const __m512 low = _mm512_load_ps(from), high = _mm512_load_ps(from + kSide);
        store_mean(_mm512_permutex2var_ps(low, first, high), weight_sum, out + d);
        store_mean(_mm512_permutex2var_ps(low, second, high), weight_sum, out + d + kSide);
      }
    }
  }

 private:
  static void store_mean(__m512 sum, __m512 weight_sum, bfloat16* out) {
    const __m512 mean = (sum + _mm512_setzero_ps()) / weight_sum;
    const auto bits = reinterpret_cast<__m512i>(detail::round_bfloat16(reinterpret_cast<RegF32>(mean)) >> 16);
    _mm512_mask_cvtepi32_storeu_epi16(out, 0xffff, bits);
  }

  /// Where the keys [first, end), a block at most, and their values are. What is behind them is not read.
  void find_rows(int64_t first, int64_t end, const uint16_t** keys, const uint16_t** values) const {
    for (int64_t i = 0; i < kKeyBlock / kSide; ++i) {
      const int64_t key = first + i * kSide;
      const int64_t row = rows_.cache_row(key < end ? key : first);
      keys[i] = rows_.key_row(row);
      values[i] = rows_.value_row(row);
    }
  }

  /// Whether values are copied as pairs once for all rows. With up to two tiles of rows each interleaves them for itself.
  bool packs() const { return rows_.num_pieces() > 1 || rows_.piece_rows(0) > kSide; }

  /// To w_.values, [head_dim / 32][pairs of keys of a block][2][32].
  void pack_values(const CacheRows<kKeyBlock>& cache, int64_t num_keys) const {
    const int64_t head_dim = rows_.shape().num_cols;
    for (int64_t key = 0; key < num_keys; key += 2) {
      const uint16_t* row = cache.values[key / kSide] + key % kSide * head_dim;
      for (int64_t d = 0; d < head_dim; d += kPairCols) {
        __m512i low, high;
        ValueSlice::load(row + d, head_dim, key + 1 < num_keys, low, high);
        _mm512_store_si512(w_.values + d * kKeyBlock + key * kPairCols, low);
        _mm512_store_si512(w_.values + d * kKeyBlock + (key + 1) * kPairCols, high);
      }
    }
  }

  /// The first piece asks for what comes next.
  template <int kHalves>
  void attend_block(const CacheRows<kKeyBlock>& cache, int64_t piece, const KeySums& sums, int64_t first_key,
                    int64_t num_keys) const {
    const HeadShape& shape = rows_.shape();
    const uint16_t* queries = w_.queries + piece * shape.query_elements();
    multiply_keys<kHalves>(shape, cache, num_keys, queries, piece == 0 && !packs(), w_.block.scores);
    if (weigh_block<kHalves>(rows_, piece, first_key, num_keys, w_.block, sums.row_peak, scale_)) rescale(piece, sums);
    if (packs()) {
      multiply_values<true>(cache, num_keys, rows_.piece_rows(piece), piece == 0, sums.sums);
    } else {
      multiply_values<false>(cache, num_keys, rows_.piece_rows(piece), piece == 0, sums.sums);
    }
    for (int64_t half = 0; half < kHalves; ++half) add_weights(num_keys, half, sums.sums + shape.num_cols * kRows);
  }

  /// S^T. If it asks, for as many of the values of the keys at hand.
  template <int kHalves>
  [[gnu::noinline]] static void multiply_keys(const HeadShape& shape, const CacheRows<kKeyBlock>& cache, int64_t num_keys,
                                              const uint16_t* queries, bool asks, float* scores) {
    constexpr int kCount = kMostRows * 2 / kHalves;
    for (int64_t key = 0; key < num_keys; key += kCount) {
      const int64_t offset = key % kSide * shape.num_cols;
      const uint16_t* keys = cache.keys[key / kSide] + offset;
      const uint16_t* values = asks ? cache.values[key / kSide] + offset : nullptr;
      Sums<kCount, kHalves> sums;
      sums.clear();
      for (int64_t d = 0; d < shape.num_cols; d += kPairCols) {
        for (int64_t j = 0; asks && j < kCount; ++j, values += kPairCols) __builtin_prefetch(values, 0, 3);
        sums.add(keys + d, shape.num_cols, queries + d / kPairCols * 2 * kTile, kTilePairs);
      }
      sums.store(scores + key * kRows);
    }
  }

  /// O += P V, of `num_rows` rows. If it asks, for the next block's keys.
  template <bool kPacked>
  void multiply_values(const CacheRows<kKeyBlock>& cache, int64_t num_keys, int64_t num_rows, bool asks, float* sums) const {
    const int64_t head_dim = rows_.shape().num_cols, num_slices = head_dim / kPairCols;
    for (int64_t d = 0; d < head_dim; d += kPairCols) {
      const uint16_t* values[kKeyBlock / kSide];
      const uint16_t* next_keys[kKeyBlock / kSide];
      for (int64_t i = 0; i < kKeyBlock / kSide; ++i) {
        values[i] = cache.values[i] + d;
        const int64_t chunk = d / kPairCols * (kKeyBlock / kSide) + i;
        next_keys[i] = cache.next_keys[chunk / num_slices] + chunk % num_slices * kTile;
      }
      for (int64_t half = 0; half < num_rows; half += kSide) {
        const int64_t count = num_rows - half < kSide ? num_rows - half : kSide;
        for_each_row_tile<kMostRows>(count, [&](int64_t first, int64_t tile_rows) {
          const ValueSlice slice{values, head_dim, w_.values + d * kKeyBlock, asks && half + first == 0 ? next_keys : nullptr};
          const uint16_t* weights = w_.block.weights + pair_offset(0, half / kSide) + 2 * first;
          float* to = sums + (half + first) * head_dim + d;
          run_rows<ValueCols<kPacked>::template Rows, kMostRows>(tile_rows, slice, num_keys, weights, to);
        });
      }
    }
  }

  /// The sum of the weights of one half of the rows.
  void add_weights(int64_t num_keys, int64_t half, float* weight_sums) const {
    __m512 sums = _mm512_load_ps(weight_sums + half * kSide);
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    for (int64_t key = 0; key < num_keys; key += 2)
      add_products(sums, ones, _mm512_load_si512(w_.block.weights + pair_offset(key, half)));
    _mm512_store_ps(weight_sums + half * kSide, sums);
  }

  void rescale(int64_t piece, const KeySums& sums) const {
    const int64_t head_dim = rows_.shape().num_cols;
    float* weight_sums = sums.sums + head_dim * kRows;
    for (int64_t r = 0; r < rows_.piece_rows(piece); ++r) {
      if (w_.block.row_alpha[r] == 1.0f) continue;
      const __m512 alpha = _mm512_set1_ps(w_.block.row_alpha[r]);
      weight_sums[r] *= w_.block.row_alpha[r];
      float* row = sums.sums + r * head_dim;
      for (int64_t d = 0; d < head_dim; d += kSide) _mm512_store_ps(row + d, _mm512_load_ps(row + d) * alpha);
    }
  }

  const GroupRows& rows_;
  const CachedWorkspace& w_;
  float scale_;
};

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
