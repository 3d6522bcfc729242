#include "kernels/cpu/bf16_segment_attention.h"
#include "kernels/cpu/dot_bf16.h"
#include "kernels/cpu/dot_bf16_ops.h"

// Attention within segments with AVX-512 BF16: the products of bf16_segment_attention.h.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int kMostRows = 8;  // of a product at a time: 8 x 2 registers of sums, two of the right side, one of the left
constexpr int64_t kTilePairs = kPairCols / 2;

/// kCount rows of a product with 32 columns, as they are in tiles.
template <int kCount>
struct Sums {
  __m512 values[kCount][2];

  [[gnu::always_inline]] void load(const float* from) {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      values[r][0] = _mm512_load_ps(from + r * kRows);
      values[r][1] = _mm512_load_ps(from + r * kRows + kSide);
    }
  }
  [[gnu::always_inline]] void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) values[r][0] = values[r][1] = _mm512_setzero_ps();
  }
  [[gnu::always_inline]] void store(float* to) const {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      _mm512_store_ps(to + r * kRows, values[r][0]);
      _mm512_store_ps(to + r * kRows + kSide, values[r][1]);
    }
  }
  /// += kCount rows of the tile `left` times the first `num_pairs` rows of the two tiles `right`.
  [[gnu::always_inline]] void add(const uint16_t* left, const uint16_t* right, int64_t num_pairs) {
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      const __m512i low = _mm512_load_si512(right + pair * kPairCols),
                    high = _mm512_load_si512(right + kTile + pair * kPairCols);
#pragma GCC unroll 8
      for (int r = 0; r < kCount; ++r) {
        int32_t word;
        std::memcpy(&word, left + r * kPairCols + 2 * pair, sizeof(word));
        const __m512i values_of_row = _mm512_set1_epi32(word);
        add_products(values[r][0], values_of_row, low);
        add_products(values[r][1], values_of_row, high);
      }
    }
  }
};

/// O^T += V^T P for kCount columns of values from `d` on, all in one tile.
template <int kCount>
void multiply_value_rows(const Workspace& w, int64_t d, int64_t first_step, int64_t num_steps) {
  float* to = w.sums + d * kRows;
  const uint16_t* values = w.values + (first_step * w.d_tiles + d / kSide) * kTile + d % kSide * kPairCols;
  Sums<kCount> sums;
  sums.load(to);
  for (int64_t step = 0; step < num_steps; ++step)
    sums.add(values + step * w.d_tiles * kTile, w.weights + step * 2 * kTile, kTilePairs);
  sums.store(to);
}

struct Dots {
  static constexpr int64_t kKeyBlock = 128;

  static void multiply_keys(const Workspace& w, int64_t first_step, int64_t num_steps) {
    const int64_t num_pairs = (w.num_cols + 1) / 2;
    const int64_t num_keys = num_steps * kKeyStep;
    for (int64_t key = 0; key < num_keys; key += kMostRows) {
      const uint16_t* keys = w.keys + (first_step * 2 + key / kSide) * w.k_tiles * kTile + key % kSide * kPairCols;
      Sums<kMostRows> sums;
      sums.clear();
      for (int64_t t = 0; t < w.k_tiles; ++t) {
        const int64_t left = num_pairs - t * kTilePairs;
        sums.add(keys + t * kTile, w.queries + 2 * t * kTile, left < kTilePairs ? left : kTilePairs);
      }
      sums.store(w.scores + key * kRows);
    }
  }

  static void multiply_values(const Workspace& w, int64_t first_step, int64_t num_steps) {
    const int64_t num_rows = w.num_cols + 1;  // with the sum of the weights
    int64_t d = 0;
    for (; d + kMostRows <= num_rows; d += kMostRows) multiply_value_rows<kMostRows>(w, d, first_step, num_steps);
    for (; d + 4 <= num_rows; d += 4) multiply_value_rows<4>(w, d, first_step, num_steps);
    for (; d < num_rows; ++d) multiply_value_rows<1>(w, d, first_step, num_steps);
  }
};

}  // namespace

void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args) { run_segment_attention<Dots>(pool, args); }

bool takes_segments(const SegmentAttentionArgs& args) { return takes_segment_attention(args); }

}  // namespace ferry::FERRY_ISA_NAMESPACE
