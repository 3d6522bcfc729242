#include "kernels/cpu/bf16_cached_attention.h"
#include "kernels/cpu/bf16_ops.h"
#include "kernels/cpu/bf16_segment_attention.h"
#include "kernels/cpu/dot_bf16_row_walk.h"

// Attention with AVX-512 BF16: the products of bf16_attention.h. Of an element, all ways to multiply add the pairs of columns
// or keys one after the other.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// O^T += V^T P for kCount columns of values from `d` on, all in one tile.
template <int kCount, int kHalves>
void multiply_value_rows(const HeadShape& shape, const uint16_t* all_values, int64_t d, int64_t num_steps,
                         const uint16_t* weights, float* all_sums) {
  const uint16_t* values = all_values + d / kSide * kTile + d % kSide * kPairCols;
  Sums<kCount, kHalves> sums;
  sums.load(all_sums + d * kRows);
  for (int64_t step = 0; step < num_steps; ++step)
    sums.add(values + step * shape.value_step_elements(), kPairCols, weights + step * 2 * kTile, kTilePairs);
  sums.store(all_sums + d * kRows);
}

// Products are calls of their own: where g++ 12 takes them into a walk over keys, it keeps their sums in memory (seen: half the
// speed).
struct Dots {
  static constexpr int64_t kKeyBlock = 128;
  static constexpr int64_t kGroupRows = 128;  // 256 are 15 % slower: their sums leave the second cache no room for values
  using RowWalk = DotRowWalk<kKeyBlock, ValueRows>;
  using CodeWalk = DotRowWalk<kKeyBlock, CodedRows>;

  static bool reads_rows(const KvLayerView& cache) {
    return cache.head_dim % kPairCols == 0 && cache.block_tokens % kSide == 0;
  }

  template <int kHalves>
  [[gnu::noinline]] static void multiply_keys(const HeadShape& shape, const uint16_t* all_keys, int64_t num_steps,
                                              const uint16_t* queries, float* scores) {
    constexpr int kCount = kMostRows * 2 / kHalves;
    const int64_t num_pairs = (shape.num_cols + 1) / 2;
    for (int64_t key = 0; key < num_steps * kKeyStep; key += kCount) {
      const uint16_t* keys = all_keys + key / kSide * shape.k_tiles * kTile + key % kSide * kPairCols;
      Sums<kCount, kHalves> sums;
      sums.clear();
      for (int64_t t = 0; t < shape.k_tiles; ++t) {
        const int64_t left = num_pairs - t * kTilePairs;
        sums.add(keys + t * kTile, kPairCols, queries + 2 * t * kTile, left < kTilePairs ? left : kTilePairs);
      }
      sums.store(scores + key * kRows);
    }
  }

  template <int kHalves>
  static void multiply_values(const HeadShape& shape, const uint16_t* values, int64_t num_steps, const uint16_t* weights,
                              float* sums) {
    const int64_t num_rows = shape.num_cols + 1;  // with the sum of the weights
    int64_t d = 0;
    for (; d + kMostRows <= num_rows; d += kMostRows)
      multiply_value_rows<kMostRows, kHalves>(shape, values, d, num_steps, weights, sums);
    for (; d + 4 <= num_rows; d += 4) multiply_value_rows<4, kHalves>(shape, values, d, num_steps, weights, sums);
    for (; d < num_rows; ++d) multiply_value_rows<1, kHalves>(shape, values, d, num_steps, weights, sums);
  }
};

}  // namespace

void attention(ThreadPool& pool, const AttentionArgs& args) { run_cached_attention<Dots>(pool, args); }
void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args) { run_segment_attention<Dots>(pool, args); }

bool takes_attention(const AttentionArgs& args) { return takes_cached_attention(args); }
bool takes_segments(const SegmentAttentionArgs& args) { return takes_segment_attention(args); }

}  // namespace ferry::FERRY_ISA_NAMESPACE
