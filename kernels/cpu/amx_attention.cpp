#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/bf16_cached_attention.h"
#include "kernels/cpu/bf16_ops.h"
#include "kernels/cpu/bf16_segment_attention.h"

// Attention on AMX tiles: the products of bf16_attention.h.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kScoreStride = kRows * 4;  // bytes
constexpr int64_t kTileStride = 64;          // bytes

/// O^T += V^T P, for one or two tiles of columns.
template <int kHalves, bool kTwo>
void multiply_value_tiles(const HeadShape& shape, const uint16_t* values, int64_t num_steps, const uint16_t* weights,
                          float* first_sum) {
  constexpr bool kBoth = kHalves == 2;
  auto* sums = reinterpret_cast<std::byte*>(first_sum);
  _tile_loadd(0, sums, kScoreStride);
  if constexpr (kBoth) _tile_loadd(1, sums + 64, kScoreStride);
  if constexpr (kTwo) _tile_loadd(2, sums + kSide * kScoreStride, kScoreStride);
  if constexpr (kTwo && kBoth) _tile_loadd(3, sums + kSide * kScoreStride + 64, kScoreStride);
  for (int64_t step = 0; step < num_steps; ++step, values += shape.value_step_elements(), weights += 2 * kTile) {
    _tile_loadd(4, values, kTileStride);
    if constexpr (kTwo) _tile_loadd(5, values + kTile, kTileStride);
    _tile_loadd(6, weights, kTileStride);
    if constexpr (kBoth) _tile_loadd(7, weights + kTile, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kBoth) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwo) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTwo && kBoth) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kScoreStride);
  if constexpr (kBoth) _tile_stored(1, sums + 64, kScoreStride);
  if constexpr (kTwo) _tile_stored(2, sums + kSide * kScoreStride, kScoreStride);
  if constexpr (kTwo && kBoth) _tile_stored(3, sums + kSide * kScoreStride + 64, kScoreStride);
}

/// S^T of 32 keys.
template <int kHalves>
void multiply_key_tiles(const HeadShape& shape, const uint16_t* keys, const uint16_t* queries, std::byte* scores) {
  constexpr bool kBoth = kHalves == 2;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t t = 0; t < shape.k_tiles; ++t) {
    _tile_loadd(4, keys + t * kTile, kTileStride);
    _tile_loadd(5, keys + (shape.k_tiles + t) * kTile, kTileStride);
    _tile_loadd(6, queries + 2 * t * kTile, kTileStride);
    if constexpr (kBoth) _tile_loadd(7, queries + (2 * t + 1) * kTile, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kBoth) {
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, scores, kScoreStride);
  _tile_stored(2, scores + kSide * kScoreStride, kScoreStride);
  if constexpr (kBoth) {
    _tile_stored(1, scores + 64, kScoreStride);
    _tile_stored(3, scores + kSide * kScoreStride + 64, kScoreStride);
  }
}

class Tiles : WholeTiles {
 public:
  static constexpr int64_t kKeyBlock = 256;
  static constexpr int64_t kGroupRows = 256;
  using RowWalk = TileWalk<Tiles>;
  using CodeWalk = TileWalk<Tiles>;

  static bool reads_rows(const KvLayerView&) { return false; }

  template <int kHalves>
  static void multiply_keys(const HeadShape& shape, const uint16_t* keys, int64_t num_steps, const uint16_t* queries,
                            float* scores) {
    memory_barrier();
    auto* to = reinterpret_cast<std::byte*>(scores);
    for (int64_t step = 0; step < num_steps; ++step)
      multiply_key_tiles<kHalves>(shape, keys + step * shape.key_step_elements(), queries, to + step * kKeyStep * kScoreStride);
    memory_barrier();
  }

  template <int kHalves>
  static void multiply_values(const HeadShape& shape, const uint16_t* values, int64_t num_steps, const uint16_t* weights,
                              float* sums) {
    memory_barrier();
    int64_t d = 0;
    for (; d + 1 < shape.d_tiles; d += 2)
      multiply_value_tiles<kHalves, true>(shape, values + d * kTile, num_steps, weights, sums + d * kSide * kRows);
    if (d < shape.d_tiles)
      multiply_value_tiles<kHalves, false>(shape, values + d * kTile, num_steps, weights, sums + d * kSide * kRows);
    memory_barrier();
  }
};

}  // namespace

bool takes_attention(const AttentionArgs& args) { return takes_cached_attention(args); }
bool takes_segments(const SegmentAttentionArgs& args) { return takes_segment_attention(args); }

void attention(ThreadPool& pool, const AttentionArgs& args) { run_cached_attention<Tiles>(pool, args); }
void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args) { run_segment_attention<Tiles>(pool, args); }

}  // namespace ferry::FERRY_ISA_NAMESPACE
