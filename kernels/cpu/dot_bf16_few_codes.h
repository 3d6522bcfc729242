#pragma once

#include <bit>

#include "kernels/cpu/bf16_code_rows.h"
#include "kernels/cpu/dot_bf16_few_rows.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu_features.h"

// Scores of a block of keys and sums of its values for up to 8 rows of the batch, as in dot_bf16_few_rows.h, over a cache of
// codes. They become bf16 as whole numbers, in registers, by tables of bytes (AVX-512 VBMI): 7 instructions for 64 values
// where conversion and multiplication by a scale are 16, and 11 for 64 keys, which are transposed as bytes, instead of 24. The
// powers of two of their groups (kernels/kv_layout.h) go where there is less to multiply:
//
//   keys     into the sums, which are kept below the exponent of the group at hand: once for each 32 columns
//   values   into the weights, 32 of which are a register
//
// Both are exact, and a sum is rounded as that of scaled codes, as long as nothing becomes too small for a normal number or
// too large for any. Exponents, queries and weights are asked for that beforehand, and a block where it might happen is
// multiplied as scaled codes. So all bits are those of attention over bf16.
//
// Included only by files that are compiled for AVX-512 BF16.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// The bytes of 0 ‥ 127 as bf16.
struct WholeNumbers {
  alignas(64) uint8_t lower[128];
  alignas(64) uint8_t upper[128];
};
consteval WholeNumbers whole_numbers() {
  WholeNumbers numbers{};
  for (unsigned i = 1; i < 128; ++i) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(i)) >> 16;
    numbers.lower[i] = static_cast<uint8_t>(bits);
    numbers.upper[i] = static_cast<uint8_t>(bits >> 8);
  }
  return numbers;
}
inline constexpr WholeNumbers kWholeNumbers = whole_numbers();

/// From 64 codes to bf16.
class CodeTables {
 public:
  /// The codes 0 ‥ 7 of each 16 are in `low`, 8 ‥ 15 in `high`.
  [[gnu::always_inline]] void widen(__m512i codes, __m512i& low, __m512i& high) const {
    const __m512i magnitudes = _mm512_abs_epi8(codes);
    const __m512i lower = bytes_at(magnitudes, lower_);
    const __m512i upper = _mm512_ternarylogic_epi32(bytes_at(magnitudes, upper_), codes, _mm512_set1_epi8(-128), 0xf8);
    low = _mm512_unpacklo_epi8(lower, upper);
    high = _mm512_unpackhi_epi8(lower, upper);
  }

 private:
  struct Table {
    explicit Table(const uint8_t* bytes) : first(_mm512_load_si512(bytes)), second(_mm512_load_si512(bytes + 64)) {}
    __m512i first, second;
  };
  /// In assembler for the reason that vnni_matmul.cpp gives.
  [[gnu::always_inline]] static __m512i bytes_at(__m512i places, const Table& table) {
    asm("vpermi2b %2, %1, %0" : "+v"(places) : "v"(table.first), "v"(table.second));
    return places;
  }

  Table lower_{kWholeNumbers.lower}, upper_{kWholeNumbers.upper};
};

/// Columns 0 ‥ 15 of 16 rows of codes: lane group j of codes[i] has columns 4 i and 4 i + 1 of rows 4 j ‥ 4 j + 3, and behind
/// them columns 4 i + 2 and 4 i + 3. rows[j] is row 4 j.
[[gnu::always_inline]] inline void load_code_pairs(const int8_t* const (&rows)[4], int64_t stride, __m512i (&codes)[4]) {
  __m512i quarter[4];
  load_quarters(rows, stride, quarter);
  const __m512i low0 = _mm512_unpacklo_epi16(quarter[0], quarter[1]), high0 = _mm512_unpackhi_epi16(quarter[0], quarter[1]);
  const __m512i low1 = _mm512_unpacklo_epi16(quarter[2], quarter[3]), high1 = _mm512_unpackhi_epi16(quarter[2], quarter[3]);
  codes[0] = _mm512_maskz_unpacklo_epi32(0xffff, low0, low1);
  codes[1] = _mm512_maskz_unpackhi_epi32(0xffff, low0, low1);
  codes[2] = _mm512_maskz_unpacklo_epi32(0xffff, high0, high1);
  codes[3] = _mm512_maskz_unpackhi_epi32(0xffff, high0, high1);
}

/// Of two rows of 32 codes, even places from the first: lane group j has columns 4 j ‥ 4 j + 3 in pairs, and then 16 + 4 j ‥.
struct PairPlaces {
  alignas(64) uint8_t bytes[64];
};
consteval PairPlaces pair_places() {
  PairPlaces places{};
  for (int i = 0; i < 64; ++i) places.bytes[i] = static_cast<uint8_t>(i / 16 * 4 + i % 8 / 2 + i % 16 / 8 * 16 + i % 2 * 64);
  return places;
}
inline constexpr PairPlaces kPairPlaces = pair_places();

constexpr int64_t kMostGroups = kMaxHeadDim / kKvGroupCols;  // of a row

/// Where in [16, groups] bytes those are that follow each other in [groups, 16].
struct GroupPlaces {
  alignas(64) uint8_t of[kMostGroups + 1][kMostGroups * kSide];
};
consteval GroupPlaces group_places() {
  GroupPlaces places{};
  for (int64_t groups = 1; groups <= kMostGroups; ++groups) {
    for (int64_t i = 0; i < kMostGroups * kSide; ++i)
      places.of[groups][i] = static_cast<uint8_t>((i % kSide * groups + i / kSide) % 128);
  }
  return places;
}
inline constexpr GroupPlaces kGroupPlaces = group_places();

/// The exponents of a block's keys and values, a group's behind each other, and whether products of whole numbers have the bits
/// of products of scaled codes. A group of zeros, and what lies behind the last key, has the largest exponent of the range: it
/// adds nothing.
///
/// Keys: queries of 2^-40 ‥ 2^41 are multiples of 2^-47, so sums below any exponent of a range of 2^60 are multiples of 2^-107,
/// and no larger than 2^41 2^60 2^7 256: none is too small for a normal number, none too large.
/// Values: a product is the same number, whichever factor has the power of two, as long as the scaled weight is normal.
template <int64_t kKeyBlock>
class BlockExponents {
 public:
  /// `key_runs` and `value_runs` have those of 16 keys each, [16, num_groups].
  BlockExponents(const uint8_t* const* key_runs, const uint8_t* const* value_runs, int64_t num_keys, int64_t num_groups)
      : num_groups_(num_groups) {
    const int least_key = load(key_runs, num_keys, kMostKey, keys_);
    least_value_ = load(value_runs, num_keys, kMostValue, values_);
    in_range_ = is_below_ && least_key >= kMostKey - kSpan && least_value_ >= kMostValue - kSpan;
  }

  /// Of keys and values alone.
  bool in_range() const { return in_range_; }
  /// Queries of up to 8 rows, as load_queries() gives them.
  static bool takes_queries(const HeadShape& shape, const uint16_t* queries) {
    const __m512i least = _mm512_set1_epi16((127 - 40) << 7), span = _mm512_set1_epi16(81 << 7);
    uint32_t others = 0;
    for (int64_t i = 0; i < shape.query_elements(); i += kPairCols) {
      const __m512i size = _mm512_and_si512(_mm512_load_si512(queries + i), _mm512_set1_epi16(0x7fff));
      const __mmask32 is_there = _mm512_test_epi16_mask(size, size);
      others |= _mm512_mask_cmpge_epu16_mask(is_there, _mm512_sub_epi16(size, least), span);
    }
    return others == 0;
  }
  /// Weights of all rows, [num_rows, kKeyBlock]: whether all but zeros stay normal in every group.
  bool takes_weights(const uint16_t* weights, int64_t num_rows, int64_t num_keys) const {
    __m512i least = _mm512_set1_epi16(-1);
    for (int64_t r = 0; r < num_rows; ++r) {
      for (int64_t key = 0; key < num_keys; key += kKeyStep) {
        const __m512i weight = _mm512_load_si512(weights + r * kKeyBlock + key);
        least = _mm512_min_epu16(least, _mm512_sub_epi16(weight, _mm512_set1_epi16(kLeastNormal)));  // the largest, of a zero
      }
    }
    return least_word(least) >= (kMostValue - least_value_) << 7;
  }
  /// Weights times the powers of one group; [num_rows, kKeyBlock] both.
  void scale_weights(int64_t group, const uint16_t* weights, int64_t num_rows, int64_t num_keys, uint16_t* scaled) const {
    for (int64_t key = 0; key < num_keys; key += kKeyStep) {
      const __m512i biased = _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(values_[group] + key)));
      const __m512i lowers = _mm512_slli_epi16(_mm512_sub_epi16(_mm512_set1_epi16(kMostValue), biased), 7);
      for (int64_t at = key; at < num_rows * kKeyBlock; at += kKeyBlock)
        _mm512_store_si512(scaled + at, _mm512_subs_epu16(_mm512_load_si512(weights + at), lowers));
    }
  }
  const uint8_t* keys(int64_t group) const { return keys_[group]; }

 private:
  static constexpr int kMostKey = 135, kMostValue = 127, kSpan = 60;
  static constexpr int kLeastNormal = 1 << 7;  // of bf16
  using Groups = uint8_t[kMostGroups][kKeyBlock];

  /// Returns the least; sees whether one is above `most`.
  int load(const uint8_t* const* runs, int64_t num_keys, int most, Groups& to) {
    const __m512i largest = _mm512_set1_epi8(static_cast<char>(most));
    __m512i least = largest, greatest = largest;
    for (int64_t key = 0; key < (num_keys + kKeyStep - 1) / kKeyStep * kKeyStep; key += kSide) {
      const int64_t count = (num_keys - key < kSide ? num_keys > key ? num_keys - key : 0 : kSide) * num_groups_;
      __m512i bytes[2] = {largest, largest};
      for (int i = 0; i < 2 && 64 * i < count; ++i) {
        bytes[i] = _mm512_mask_loadu_epi8(largest, mask_of(count - 64 * i), runs[key / kSide] + 64 * i);
        bytes[i] = _mm512_mask_mov_epi8(bytes[i], _mm512_testn_epi8_mask(bytes[i], bytes[i]), largest);
        least = _mm512_min_epu8(least, bytes[i]);
        greatest = _mm512_max_epu8(greatest, bytes[i]);
      }
      store_groups(bytes, key, to);
    }
    is_below_ = is_below_ && _mm512_cmpeq_epi8_mask(greatest, largest) == ~uint64_t{0};
    return least_byte(least);
  }
  static __mmask64 mask_of(int64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }
  /// Those of 16 keys, [16, num_groups_], as what follows `key` in every group.
  void store_groups(const __m512i (&bytes)[2], int64_t key, Groups& to) const {
    for (int64_t first = 0; first < num_groups_; first += 4) {
      __m512i groups = _mm512_load_si512(kGroupPlaces.of[num_groups_] + first * kSide);
      asm("vpermi2b %2, %1, %0" : "+v"(groups) : "v"(bytes[0]), "v"(bytes[1]));
      alignas(64) uint8_t quarters[4][kSide];
      _mm512_store_si512(quarters, groups);
      for (int64_t i = 0; i < 4; ++i) std::memcpy(to[first + i] + key, quarters[i], kSide);
    }
  }
  static int least_word(__m512i words) {
    return lowest_word(_mm_minpos_epu16(fold(words, [](__m128i x, __m128i y) { return _mm_min_epu16(x, y); })));
  }
  static int least_byte(__m512i bytes) {
    const __m128i least = fold(bytes, [](__m128i x, __m128i y) { return _mm_min_epu8(x, y); });
    return lowest_word(_mm_minpos_epu16(_mm_min_epu8(least, _mm_srli_epi16(least, 8))));  // upper bytes are zeros
  }
  template <class Fn>
  static __m128i fold(__m512i values, Fn fn) {
    alignas(64) __m128i quarters[4];
    _mm512_store_si512(quarters, values);
    return fn(fn(quarters[0], quarters[1]), fn(quarters[2], quarters[3]));
  }
  static int lowest_word(__m128i words) { return _mm_cvtsi128_si32(words) & 0xffff; }

  int64_t num_groups_;
  int least_value_ = 0;
  bool is_below_ = true, in_range_ = false;
  alignas(64) Groups keys_;
  alignas(64) Groups values_;
};

template <int64_t kKeyBlock>
struct CodeLanes {
  /// KeyLanes of codes (dot_bf16_few_rows.h).
  template <int kCount>
  struct Keys {
    [[gnu::noinline]] static void run(const HeadShape& shape, const int8_t* const* key_runs,
                                      const BlockExponents<kKeyBlock>& exponents, int64_t num_keys, const uint16_t* queries,
                                      const int8_t* const* value_runs, float* scores) {
      const CodeTables tables;
      for (int64_t key = 0; key < num_keys; key += 2 * kSide) {
        const int8_t* rows[2][4];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) rows[i / 4][i % 4] = key_runs[key / kSide + i / 4] + 4 * (i % 4) * shape.num_cols;
        __m512 sums[kCount][2];
#pragma GCC unroll 8
        for (int r = 0; r < kCount; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
        for (int64_t group = 0; group < shape.k_tiles; ++group) {
          if (group > 0) {
            const uint8_t *last = exponents.keys(group - 1) + key, *next = exponents.keys(group) + key;
            const __m512 ratio0 = ratio(last, next), ratio1 = ratio(last + kSide, next + kSide);
#pragma GCC unroll 8
            for (int r = 0; r < kCount; ++r) sums[r][0] *= ratio0, sums[r][1] *= ratio1;
          }
          const uint16_t* query = queries + group * 2 * kTile;
          for (int64_t half = 0; half < 2; ++half, query += kTile / 2) {
            __m512i codes[2][4];
            load_code_pairs(rows[0], shape.num_cols, codes[0]);
            load_code_pairs(rows[1], shape.num_cols, codes[1]);
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) rows[i / 4][i % 4] += kSide;
            ask_for_values(value_runs + key / kSide, 2 * group + half, shape.k_tiles);
#pragma GCC unroll 4
            for (int w = 0; w < 4; ++w) {
              __m512i words[2][2];
              tables.widen(codes[0][w], words[0][0], words[1][0]);
              tables.widen(codes[1][w], words[0][1], words[1][1]);
#pragma GCC unroll 2
              for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 8
                for (int r = 0; r < kCount; ++r) {
                  const __m512i pair = broadcast_pair(query + (2 * w + i) * kPairCols + 2 * r);
                  add_products(sums[r][0], words[i][0], pair);
                  add_products(sums[r][1], words[i][1], pair);
                }
              }
            }
          }
        }
        const uint8_t* last = exponents.keys(shape.k_tiles - 1) + key;
        const __m512 scale0 = power(load_exponents(last)), scale1 = power(load_exponents(last + kSide));
#pragma GCC unroll 8
        for (int r = 0; r < kCount; ++r) {
          _mm512_store_ps(scores + r * kKeyBlock + key, sums[r][0] * scale0);
          _mm512_store_ps(scores + r * kKeyBlock + key + kSide, sums[r][1] * scale1);
        }
      }
    }

   private:
    static constexpr int64_t kLine = 64;  // bytes

    /// Of two runs of 16 values, which `run_chunks` times 512 bytes are each.
    [[gnu::always_inline]] static void ask_for_values(const int8_t* const* runs, int64_t chunk, int64_t run_chunks) {
      const int8_t* values = chunk < run_chunks ? runs[0] + chunk * kTile : runs[1] + (chunk - run_chunks) * kTile;
#pragma GCC unroll 8
      for (int64_t i = 0; i < kTile; i += kLine) __builtin_prefetch(values + i, 0, 3);
    }
    [[gnu::always_inline]] static __m512i load_exponents(const uint8_t* from) {
      return _mm512_maskz_cvtepu8_epi32(0xffff, _mm_load_si128(reinterpret_cast<const __m128i*>(from)));
    }
    [[gnu::always_inline]] static __m512 power(__m512i biased) {
      return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, biased, 23));
    }
    /// What turns sums below one exponent into those below the next one.
    [[gnu::always_inline]] static __m512 ratio(const uint8_t* from, const uint8_t* to) {
      const __m512i difference = _mm512_sub_epi32(load_exponents(from), load_exponents(to));
      return power(_mm512_add_epi32(difference, _mm512_set1_epi32(127)));
    }
  };

  /// 32 columns of a block's values, 16 rows of which follow each other, `stride` apart. `weights` are those of the first row;
  /// `to` its sums, which are stride apart.
  struct Slice {
    const int8_t* const* runs;
    int64_t stride;
    const int8_t* const* next_keys;  // for each 16 keys, 512 bytes that are asked for meanwhile
  };
  template <int kCount>
  struct Values {
    [[gnu::noinline]] static void run(const Slice& slice, int64_t num_keys, const uint16_t* weights, float* to) {
      const CodeTables tables;
      const __m512i places = _mm512_load_si512(kPairPlaces.bytes);
      __m512 sums[kCount][2];
#pragma GCC unroll 8
      for (int r = 0; r < kCount; ++r) {
        sums[r][0] = _mm512_load_ps(to + r * slice.stride);
        sums[r][1] = _mm512_load_ps(to + r * slice.stride + kSide);
      }
      for (int64_t key = 0; key < num_keys; key += 2) {
        const int64_t slot = key % kSide;
        const int8_t* row = slice.runs[key / kSide] + slot * slice.stride;
        __builtin_prefetch(slice.next_keys[key / kSide] + slot * kPairCols, 0, 3);
        __m512i low, high;
        tables.widen(interleave(load_row(row), places, load_row(row + slice.stride)), low, high);
#pragma GCC unroll 8
        for (int r = 0; r < kCount; ++r) {
          const __m512i weight = broadcast_pair(weights + r * kKeyBlock + key);
          add_products(sums[r][0], low, weight);
          add_products(sums[r][1], high, weight);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kCount; ++r) {
        _mm512_store_ps(to + r * slice.stride, sums[r][0]);
        _mm512_store_ps(to + r * slice.stride + kSide, sums[r][1]);
      }
    }

   private:
    [[gnu::always_inline]] static __m512i load_row(const int8_t* row) {
      return _mm512_maskz_broadcast_i64x4(0xff, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(row)));
    }
    [[gnu::always_inline]] static __m512i interleave(__m512i even, __m512i places, __m512i odd) {
      asm("vpermt2b %2, %1, %0" : "+v"(even) : "v"(places), "v"(odd));
      return even;
    }
  };
};

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
