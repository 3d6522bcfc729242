#pragma once

#include "kernels/cpu/bf16_cached_attention.h"
#include "kernels/cpu/dot_bf16_few_codes.h"
#include "kernels/cpu/dot_bf16_few_rows.h"
#include "kernels/cpu/dot_bf16_sums.h"
#include "kernels/cpu/row_tiles.h"

// A walk (bf16_cached_attention.h) that multiplies the cache's own rows with AVX-512 BF16, for heads of whole 32 columns and
// blocks of the cache of whole 16 tokens. O is kept as rows: the 32 of a piece, head_dim apart, where a tile's columns would
// be; of 32 columns two registers hold 16 each, in the order that the rows' source gives them.
//
// Rows of codes become bf16 next to the product: keys 16 at a time into the first cache, or a block's once for several pieces;
// values pair by pair in registers, or as what is copied for many rows. So a step of decode reads half the bytes. Up to 8 rows
// multiply codes as whole numbers where that gives the same bits (dot_bf16_few_codes.h).

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kPrefetchLine = 64;  // bytes

/// Values of bf16 as the cache has them.
struct ValueRows {
  using Element = uint16_t;
  static constexpr bool kIsCodes = false;
  static constexpr int64_t kMostUnpacked = kSide;  // rows of the batch, each tile of which interleaves values for itself

  /// 32 columns of two rows of values in pairs; without the second row, twice the first, which then weighs nothing.
  /// Columns 0 ‥ 3, 8 ‥ 11, 16 ‥ 19 and 24 ‥ 27 are in `low`, as rows interleave.
  [[gnu::always_inline]] static void load_pair(const uint16_t* row, int64_t stride, const float*, int64_t, bool has_second,
                                               __m512i& low, __m512i& high) {
    const __m512i even = _mm512_loadu_si512(row), odd = _mm512_loadu_si512(row + (has_second ? stride : 0));
    low = _mm512_unpacklo_epi16(even, odd);
    high = _mm512_unpackhi_epi16(even, odd);
  }
  /// Columns 0 ‥ 15 and 16 ‥ 31 of sums that are in load_pair()'s order.
  static void in_order(__m512& low, __m512& high) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512 first_half = _mm512_permutex2var_ps(low, first, high);
    high = _mm512_permutex2var_ps(low, _mm512_add_epi32(first, _mm512_set1_epi32(8)), high);
    low = first_half;
  }
};

/// Codes with scales.
struct CodedRows {
  using Element = int8_t;
  static constexpr bool kIsCodes = true;
  static constexpr int64_t kMostUnpacked = kMostRows;

  /// `scales` are those of the rows' groups, `num_groups` apart; columns are in their order.
  [[gnu::always_inline]] static void load_pair(const int8_t* row, int64_t stride, const float* scales, int64_t num_groups,
                                               bool has_second, __m512i& low, __m512i& high) {
    const int8_t* second = row + (has_second ? stride : 0);
    const __m512 even = _mm512_set1_ps(scales[0]), odd = _mm512_set1_ps(scales[has_second ? num_groups : 0]);
    low = pair_of(widen_codes(load_codes(row), even), widen_codes(load_codes(second), odd));
    high = pair_of(widen_codes(load_codes(row + kSide), even), widen_codes(load_codes(second + kSide), odd));
  }
  static void in_order(__m512&, __m512&) {}

 private:
  [[gnu::always_inline]] static __m512i pair_of(__m512 even, __m512 odd) {
    const __m512i low = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(even), 16);
    return _mm512_mask_mov_epi16(low, 0xaaaaaaaaU, _mm512_castps_si512(odd));
  }
};

/// Keys and values of a block, where they are: rows of head_dim columns, 16 of which follow each other.
template <class Source, int64_t kKeyBlock>
struct CacheRows {
  static constexpr int64_t kRuns = kKeyBlock / kSide;

  const typename Source::Element* keys[kRuns];    // of 16 keys each
  const typename Source::Element* values[kRuns];  // likewise
  const uint8_t* key_exponents[kRuns];            // of codes, likewise
  const uint8_t* value_exponents[kRuns];
};

/// 32 columns of a block's values, in pairs of keys.
template <class Source>
struct ValueSlice {
  const typename Source::Element* const* rows;       // of 16 keys each, where the cache has them
  int64_t stride;                                    // elements from a row to the next
  const float* scales;                               // of codes: of these columns for each key
  int64_t num_groups;                                // likewise, from a key's to the next one's
  const uint16_t* pairs;                             // [pairs of keys][2][32], as load_pair() gives them; or null
  const typename Source::Element* const* next_keys;  // for each 16 keys, 512 elements that are asked for meanwhile; or null

  /// Asks for what is due with the pair of keys that begins with `j` of the 16 from `key` on.
  [[gnu::always_inline]] void ask(int64_t key, int64_t j) const {
    __builtin_prefetch(next_keys[key / kSide] + j * kPairCols, 0, 3);
    if constexpr (!Source::kIsCodes) __builtin_prefetch(next_keys[key / kSide] + (j + 1) * kPairCols, 0, 3);
  }
};

/// Adds 32 columns of values, times the weights of kCount rows of the batch: in one half of a piece or, where a row's follow
/// each other, kWeightStride from one row's to the next's.
template <class Source, bool kPacked, int64_t kWeightStride>
struct ValueCols {
  template <int kCount>
  struct Rows {
    /// `weights` are those of the first row; `to` its sums, rows of which are slice.stride apart. Not inlined: where all counts
    /// of rows are one function, the compiler keeps sums in memory.
    [[gnu::noinline]] static void run(const ValueSlice<Source>& slice, int64_t num_keys, const uint16_t* weights, float* to) {
      constexpr bool kByRow = kWeightStride != 0;
      __m512 sums[kCount][2];
#pragma GCC unroll 8
      for (int r = 0; r < kCount; ++r) {
        sums[r][0] = _mm512_load_ps(to + r * slice.stride);
        sums[r][1] = _mm512_load_ps(to + r * slice.stride + kSide);
      }
      for (int64_t key = 0; key < num_keys; key += kSide) {
        const uint16_t* pairs = slice.pairs + key * kPairCols;
        const typename Source::Element* rows = kPacked ? nullptr : slice.rows[key / kSide];
        const float* scales = slice.scales + key * slice.num_groups;
        const uint16_t* pair = weights + (kByRow ? key : pair_offset(key, 0));
        const int64_t count = num_keys - key < kSide ? num_keys - key : kSide;
        for (int64_t j = 0; j < count; j += 2, pair += kByRow ? 2 : kPairCols) {
          if (slice.next_keys != nullptr) slice.ask(key, j);
          __m512i low, high;
          if constexpr (kPacked) {
            low = _mm512_load_si512(pairs + j * kPairCols);
            high = _mm512_load_si512(pairs + (j + 1) * kPairCols);
          } else {
            Source::load_pair(rows + j * slice.stride, slice.stride, scales + j * slice.num_groups, slice.num_groups,
                              j + 1 < count, low, high);
          }
#pragma GCC unroll 8
          for (int r = 0; r < kCount; ++r) {
            const __m512i weight = broadcast_pair(pair + r * (kByRow ? kWeightStride : 2));
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

template <int64_t kKeyBlock, class Source>
class DotRowWalk {
  using Element = typename Source::Element;
  using Rows = CacheRows<Source, kKeyBlock>;

 public:
  static constexpr bool kCopiesKeys = Source::kIsCodes;

  DotRowWalk(const GroupRows& rows, const CachedWorkspace& w, float scale) : rows_(rows), w_(w), scale_(scale) {}

  template <class SumsOf>
  void attend(int64_t first, int64_t end, SumsOf sums_of) const {
    Rows cache = find_rows(first, end);
    const bool may_be_whole = takes_whole_codes();
    for (int64_t key = first; key < end; key += kKeyBlock) {
      const int64_t num_keys = end - key < kKeyBlock ? end - key : kKeyBlock;
      const Rows next = find_rows(key + kKeyBlock < end ? key + kKeyBlock : key, end);
      if constexpr (Source::kIsCodes) {
        ask_for_exponents(next);
        if (may_be_whole && attend_whole_codes(cache, next, sums_of(0), key, num_keys)) {
          cache = next;
          continue;
        }
        load_scales(cache, num_keys);
      }
      if (shares_keys()) widen_keys(cache, 0, num_keys);
      if (packs()) pack_values(cache, num_keys);
      for (int64_t piece = 0; piece < rows_.num_pieces(); ++piece) {
        const int64_t count = rows_.num_visible(piece, key, num_keys);
        if (count <= 0) continue;
        if (rows_.piece_rows(piece) <= kSide) {
          attend_block<1>(cache, next, piece, sums_of(piece), key, count);
        } else {
          attend_block<2>(cache, next, piece, sums_of(piece), key, count);
        }
      }
      cache = next;
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
    for (int64_t r = 0; r < rows.piece_rows(piece); ++r) {
      const __m512 weight_sum = _mm512_set1_ps(sums.sums[head_dim * kRows + r]);
      bfloat16* out = rows.out_row(piece, r);
      for (int64_t d = 0; d < head_dim; d += kPairCols) {
        const float* from = sums.sums + r * head_dim + d;
        __m512 low = _mm512_load_ps(from), high = _mm512_load_ps(from + kSide);
        Source::in_order(low, high);
        store_mean(low, weight_sum, out + d);
        store_mean(high, weight_sum, out + d + kSide);
      }
    }
  }

 private:
  static void store_mean(__m512 sum, __m512 weight_sum, bfloat16* out) {
    const __m512 mean = (sum + _mm512_setzero_ps()) / weight_sum;
    const auto bits = reinterpret_cast<__m512i>(detail::round_bfloat16(reinterpret_cast<RegF32>(mean)) >> 16);
    _mm512_mask_cvtepi32_storeu_epi16(out, 0xffff, bits);
  }

  /// Where the keys [first, end), a block at most, and their values are. What is behind them is not used.
  Rows find_rows(int64_t first, int64_t end) const {
    Rows found{};
    for (int64_t i = 0; i < Rows::kRuns; ++i) {
      const int64_t key = first + i * kSide;
      const int64_t row = rows_.cache_row(key < end ? key : first);
      if constexpr (Source::kIsCodes) {
        const CodeRow key_row = rows_.key_codes(row), value_row = rows_.value_codes(row);
        found.keys[i] = key_row.codes;
        found.values[i] = value_row.codes;
        found.key_exponents[i] = key_row.exponents;
        found.value_exponents[i] = value_row.exponents;
      } else {
        found.keys[i] = rows_.key_row(row);
        found.values[i] = rows_.value_row(row);
      }
    }
    return found;
  }

  /// Of codes: the block's scales, to w_.key_scales and w_.value_scales.
  void load_scales(const Rows& cache, int64_t num_keys) const {
    const int64_t count = kSide * rows_.shape().k_tiles;
    for (int64_t key = 0; key < num_keys; key += kSide) {
      widen_scales(cache.key_exponents[key / kSide], count, w_.key_scales + key * rows_.shape().k_tiles);
      widen_scales(cache.value_exponents[key / kSide], count, w_.value_scales + key * rows_.shape().k_tiles);
    }
  }
  /// Of the next block.
  void ask_for_exponents(const Rows& next) const {
    for (int64_t i = 0; i < Rows::kRuns; ++i) {
      for (int64_t at = 0; at < kSide * rows_.shape().k_tiles; at += kPrefetchLine) {
        __builtin_prefetch(next.key_exponents[i] + at, 0, 3);
        __builtin_prefetch(next.value_exponents[i] + at, 0, 3);
      }
    }
  }

  /// Whether a block's keys are widened once for several pieces.
  bool shares_keys() const { return Source::kIsCodes && rows_.num_pieces() > 1; }

  /// Of codes: the keys [first, first + count) of a block, in whole 16, to w_.keys.
  void widen_keys([[maybe_unused]] const Rows& cache, int64_t first, int64_t count) const {
    if constexpr (Source::kIsCodes) {
      const int64_t head_dim = rows_.shape().num_cols;
      const float* scale = w_.key_scales + first * rows_.shape().k_tiles;
      uint16_t* to = w_.keys;
      for (int64_t key = first; key < first + count; key += kSide) {
        const int8_t* codes = cache.keys[key / kSide];
        for (int64_t d = 0; d < kSide * head_dim; d += kPairCols) _mm512_store_si512(to + d, widen_group(codes + d, *scale++));
        to += kSide * head_dim;
      }
    }
  }

  /// Whether values are copied as pairs once for all rows; of a few rows each tile interleaves them for itself.
  bool packs() const { return rows_.num_pieces() > 1 || rows_.piece_rows(0) > Source::kMostUnpacked; }

  /// To w_.values, [head_dim / 32][pairs of keys of a block][2][32].
  void pack_values(const Rows& cache, int64_t num_keys) const {
    const int64_t head_dim = rows_.shape().num_cols, num_groups = rows_.shape().k_tiles;
    for (int64_t key = 0; key < num_keys; key += 2) {
      const Element* row = cache.values[key / kSide] + key % kSide * head_dim;
      const float* scales = w_.value_scales + key * num_groups;
      for (int64_t d = 0; d < head_dim; d += kPairCols) {
        __m512i low, high;
        Source::load_pair(row + d, head_dim, scales + d / kPairCols, num_groups, key + 1 < num_keys, low, high);
        _mm512_store_si512(w_.values + d * kKeyBlock + key * kPairCols, low);
        _mm512_store_si512(w_.values + d * kKeyBlock + (key + 1) * kPairCols, high);
      }
    }
  }

  /// The first piece asks for what comes next.
  template <int kHalves>
  void attend_block(const Rows& cache, const Rows& next, int64_t piece, const KeySums& sums, int64_t first_key,
                    int64_t num_keys) const {
    const HeadShape& shape = rows_.shape();
    if (is_few()) return attend_few(cache, next, sums, first_key, num_keys);
    multiply_block<kHalves>(cache, num_keys, w_.queries + piece * shape.query_elements(), piece == 0 && !packs());
    if (weigh_block<kHalves>(rows_, piece, first_key, num_keys, w_.block, sums.row_peak, scale_)) rescale(piece, sums);
    if (packs()) {
      multiply_values<true>(cache, next, num_keys, rows_.piece_rows(piece), piece == 0, sums.sums);
    } else {
      multiply_values<false>(cache, next, num_keys, rows_.piece_rows(piece), piece == 0, sums.sums);
    }
    for (int64_t half = 0; half < kHalves; ++half) add_weights(num_keys, half, sums.sums + shape.num_cols * kRows);
  }

  /// Whether the group is few rows, whose scores have keys as lanes.
  bool is_few() const { return rows_.num_pieces() == 1 && rows_.piece_rows(0) <= kFewRows; }

  /// Of the only piece of few rows.
  void attend_few(const Rows& cache, const Rows& next, const KeySums& sums, int64_t first_key, int64_t num_keys) const {
    const HeadShape& shape = rows_.shape();
    const int64_t num_rows = rows_.piece_rows(0);
    multiply_few(cache, num_keys, num_rows);
    weigh_few(sums, first_key, num_keys);
    multiply_values<false, kKeyBlock>(cache, next, num_keys, num_rows, true, sums.sums);
    add_row_weights<kKeyBlock>(w_.block.weights, num_rows, num_keys, sums.sums + shape.num_cols * kRows);
  }
  void weigh_few(const KeySums& sums, int64_t first_key, int64_t num_keys) const {
    const RowWeights<kKeyBlock> weights{w_.block, rows_.piece_rows(0), num_keys, scale_};
    const auto num_visible = [&](int64_t r) {
      const int64_t count = rows_.position(0, r) + 1 - first_key;
      return count < num_keys ? count : num_keys;
    };
    if (weights.weigh(sums.row_peak, num_visible)) rescale(0, sums);
  }

  /// Whether codes may be multiplied as whole numbers (dot_bf16_few_codes.h).
  bool takes_whole_codes() const {
    if constexpr (!Source::kIsCodes) return false;
    return is_few() && has_avx512_vbmi() && BlockExponents<kKeyBlock>::takes_queries(rows_.shape(), w_.queries);
  }
  /// attend_few() with codes as whole numbers; does nothing and returns false where their exponents do not allow that.
  bool attend_whole_codes([[maybe_unused]] const Rows& cache, [[maybe_unused]] const Rows& next,
                          [[maybe_unused]] const KeySums& sums, [[maybe_unused]] int64_t first_key,
                          [[maybe_unused]] int64_t num_keys) const {
    if constexpr (Source::kIsCodes) {
      const HeadShape& shape = rows_.shape();
      const int64_t num_rows = rows_.piece_rows(0);
      const BlockExponents<kKeyBlock> exponents(cache.key_exponents, cache.value_exponents, num_keys, shape.k_tiles);
      if (!exponents.in_range()) return false;
      const int8_t *const *keys = cache.keys, *const *values = cache.values;
      const uint16_t* queries = w_.queries;
      float* scores = w_.block.scores;
      run_rows<CodeLanes<kKeyBlock>::template Keys, kMostRows>(num_rows, shape, keys, exponents, num_keys, queries, values,
                                                               scores);
      weigh_few(sums, first_key, num_keys);
      if (exponents.takes_weights(w_.block.weights, num_rows, num_keys)) {
        multiply_whole_values(cache, next, exponents, num_keys, num_rows, sums.sums);
      } else {
        load_scales(cache, num_keys);
        multiply_values<false, kKeyBlock>(cache, next, num_keys, num_rows, true, sums.sums);
      }
      add_row_weights<kKeyBlock>(w_.block.weights, num_rows, num_keys, sums.sums + shape.num_cols * kRows);
    }
    return true;
  }
  /// O += P V of few rows, and asks for the next block's keys.
  void multiply_whole_values(const Rows& cache, const Rows& next, const BlockExponents<kKeyBlock>& exponents, int64_t num_keys,
                             int64_t num_rows, float* sums) const {
    const int64_t head_dim = rows_.shape().num_cols, num_slices = rows_.shape().k_tiles;
    alignas(64) uint16_t weights[kFewRows * kKeyBlock];
    for (int64_t group = 0; group < num_slices; ++group) {
      exponents.scale_weights(group, w_.block.weights, num_rows, num_keys, weights);
      const Element* values[Rows::kRuns];
      const Element* next_keys[Rows::kRuns];
      for (int64_t i = 0; i < Rows::kRuns; ++i) {
        values[i] = cache.values[i] + group * kPairCols;
        const int64_t chunk = group * Rows::kRuns + i;
        next_keys[i] = next.keys[chunk / num_slices] + chunk % num_slices * kTile;
      }
      const typename CodeLanes<kKeyBlock>::Slice slice{.runs = values, .stride = head_dim, .next_keys = next_keys};
      const uint16_t* first_weights = weights;
      float* to = sums + group * kPairCols;
      run_rows<CodeLanes<kKeyBlock>::template Values, kMostRows>(num_rows, slice, num_keys, first_weights, to);
    }
  }

  /// S of few rows, [rows, kKeyBlock].
  void multiply_few(const Rows& cache, int64_t num_keys, int64_t num_rows) const {
    const HeadShape& shape = rows_.shape();
    const std::byte* values[Rows::kRuns];
    for (int64_t i = 0; i < Rows::kRuns; ++i) values[i] = reinterpret_cast<const std::byte*>(cache.values[i]);
    const auto multiply = [&](const uint16_t* const* keys, int64_t first, int64_t count) {
      const WantedValues wanted{.runs = values + first / kSide,
                                .run_chunks = shape.num_cols / kChunkCols / 2,
                                .chunk_bytes = 2 * kSide * kChunkCols * static_cast<int64_t>(sizeof(Element))};
      const uint16_t* queries = w_.queries;
      float* scores = w_.block.scores + first;
      run_rows<KeyLanes<kKeyBlock>::template Rows, kMostRows>(num_rows, shape, keys, count, queries, wanted, scores);
    };
    if constexpr (!Source::kIsCodes) {
      multiply(cache.keys, 0, num_keys);
    } else {
      for (int64_t key = 0; key < num_keys; key += 2 * kSide) {
        const int64_t count = num_keys - key < 2 * kSide ? num_keys - key : 2 * kSide;
        widen_keys(cache, key, count);
        const uint16_t* keys[2] = {w_.keys, w_.keys + kSide * shape.num_cols};
        multiply(keys, key, count);
      }
    }
  }

  /// S^T of a block.
  template <int kHalves>
  void multiply_block(const Rows& cache, int64_t num_keys, const uint16_t* queries, bool asks) const {
    const HeadShape& shape = rows_.shape();
    if constexpr (!Source::kIsCodes) {
      return multiply_keys<kHalves>(shape, cache.keys, cache.values, num_keys, queries, asks, w_.block.scores);
    }
    const bool is_shared = shares_keys();
    for (int64_t key = 0; key < num_keys; key += kSide) {
      const int64_t count = num_keys - key < kSide ? num_keys - key : kSide;
      if (!is_shared) widen_keys(cache, key, count);
      const uint16_t* keys = w_.keys + (is_shared ? key * shape.num_cols : 0);
      multiply_keys<kHalves>(shape, &keys, cache.values + key / kSide, count, queries, asks, w_.block.scores + key * kRows);
    }
  }

  /// S^T of keys in runs of 16. If it asks, for as many of the values of the keys at hand.
  template <int kHalves>
  [[gnu::noinline]] static void multiply_keys(const HeadShape& shape, const uint16_t* const* key_runs,
                                              const Element* const* value_runs, int64_t num_keys, const uint16_t* queries,
                                              bool asks, float* scores) {
    constexpr int kCount = kMostRows * 2 / kHalves;
    constexpr auto kLines =
        static_cast<int64_t>(kCount * sizeof(Element) / sizeof(uint16_t));  // of values, for each 32 columns
    constexpr auto kLine = static_cast<int64_t>(kPrefetchLine / sizeof(Element));
    for (int64_t key = 0; key < num_keys; key += kCount) {
      const int64_t offset = key % kSide * shape.num_cols;
      const uint16_t* keys = key_runs[key / kSide] + offset;
      const Element* values = asks ? value_runs[key / kSide] + offset : nullptr;
      Sums<kCount, kHalves> sums;
      sums.clear();
      for (int64_t d = 0; d < shape.num_cols; d += kPairCols) {
        for (int64_t j = 0; asks && j < kLines; ++j, values += kLine) __builtin_prefetch(values, 0, 3);
        sums.add(keys + d, shape.num_cols, queries + d / kPairCols * 2 * kTile, kTilePairs);
      }
      sums.store(scores + key * kRows);
    }
  }

  /// O += P V, of `num_rows` rows. If it asks, for the next block's keys.
  template <bool kPacked, int64_t kWeightStride = 0>
  void multiply_values(const Rows& cache, const Rows& next, int64_t num_keys, int64_t num_rows, bool asks, float* sums) const {
    const int64_t head_dim = rows_.shape().num_cols, num_slices = head_dim / kPairCols;
    for (int64_t d = 0; d < head_dim; d += kPairCols) {
      const Element* values[Rows::kRuns];
      const Element* next_keys[Rows::kRuns];
      for (int64_t i = 0; i < Rows::kRuns; ++i) {
        values[i] = cache.values[i] + d;
        const int64_t chunk = d / kPairCols * Rows::kRuns + i;
        next_keys[i] = next.keys[chunk / num_slices] + chunk % num_slices * kTile;
      }
      const float* scales = w_.value_scales + d / kPairCols;
      for (int64_t half = 0; half < num_rows; half += kSide) {
        const int64_t count = num_rows - half < kSide ? num_rows - half : kSide;
        for_each_row_tile<kMostRows>(count, [&](int64_t first, int64_t tile_rows) {
          const ValueSlice<Source> slice{.rows = values,
                                         .stride = head_dim,
                                         .scales = scales,
                                         .num_groups = num_slices,
                                         .pairs = w_.values + d * kKeyBlock,
                                         .next_keys = asks && half + first == 0 ? next_keys : nullptr};
          const uint16_t* weights =
              w_.block.weights + (kWeightStride != 0 ? first * kWeightStride : pair_offset(0, half / kSide) + 2 * first);
          float* to = sums + (half + first) * head_dim + d;
          run_rows<ValueCols<Source, kPacked, kWeightStride>::template Rows, kMostRows>(tile_rows, slice, num_keys, weights,
                                                                                        to);
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
