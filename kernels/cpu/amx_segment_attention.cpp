#include "kernels/cpu/bf16_segment_attention.h"

// Attention within segments on AMX tiles: the products of bf16_segment_attention.h.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kScoreStride = kRows * 4;  // bytes
constexpr int64_t kTileStride = 64;          // bytes

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constinit const TileShapes kShapes{};

/// Memory that tiles read or have written: the compiler's own loads and stores must not pass.
[[gnu::always_inline]] inline void memory_barrier() { asm volatile("" ::: "memory"); }

/// O^T += V^T P, for one or two tiles of columns.
template <bool kTwo>
void multiply_value_tiles(const Workspace& w, int64_t d_tile, int64_t first_step, int64_t num_steps) {
  auto* sums = reinterpret_cast<std::byte*>(w.sums) + d_tile * kSide * kScoreStride;
  _tile_loadd(0, sums, kScoreStride);
  _tile_loadd(1, sums + 64, kScoreStride);
  if constexpr (kTwo) {
    _tile_loadd(2, sums + kSide * kScoreStride, kScoreStride);
    _tile_loadd(3, sums + kSide * kScoreStride + 64, kScoreStride);
  }
  const uint16_t* values = w.values + (first_step * w.d_tiles + d_tile) * kTile;
  const uint16_t* weights = w.weights;
  for (int64_t step = 0; step < num_steps; ++step, values += w.d_tiles * kTile, weights += 2 * kTile) {
    _tile_loadd(4, values, kTileStride);
    _tile_loadd(6, weights, kTileStride);
    _tile_loadd(7, weights + kTile, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwo) {
      _tile_loadd(5, values + kTile, kTileStride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kScoreStride);
  _tile_stored(1, sums + 64, kScoreStride);
  if constexpr (kTwo) {
    _tile_stored(2, sums + kSide * kScoreStride, kScoreStride);
    _tile_stored(3, sums + kSide * kScoreStride + 64, kScoreStride);
  }
}

class Tiles {
 public:
  static constexpr int64_t kKeyBlock = 256;

  Tiles() { _tile_loadconfig(&kShapes); }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  static void multiply_keys(const Workspace& w, int64_t first_step, int64_t num_steps);
  static void multiply_values(const Workspace& w, int64_t first_step, int64_t num_steps) {
    memory_barrier();
    int64_t d = 0;
    for (; d + 1 < w.d_tiles; d += 2) multiply_value_tiles<true>(w, d, first_step, num_steps);
    if (d < w.d_tiles) multiply_value_tiles<false>(w, d, first_step, num_steps);
    memory_barrier();
  }
};

void Tiles::multiply_keys(const Workspace& w, int64_t first_step, int64_t num_steps) {
  auto* scores = reinterpret_cast<std::byte*>(w.scores);
  const uint16_t* keys = w.keys + first_step * 2 * w.k_tiles * kTile;
  memory_barrier();
  for (int64_t step = 0; step < num_steps; ++step, keys += 2 * w.k_tiles * kTile, scores += kKeyStep * kScoreStride) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t t = 0; t < w.k_tiles; ++t) {
      _tile_loadd(4, keys + t * kTile, kTileStride);
      _tile_loadd(5, keys + (w.k_tiles + t) * kTile, kTileStride);
      _tile_loadd(6, w.queries + 2 * t * kTile, kTileStride);
      _tile_loadd(7, w.queries + (2 * t + 1) * kTile, kTileStride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, scores, kScoreStride);
    _tile_stored(1, scores + 64, kScoreStride);
    _tile_stored(2, scores + kSide * kScoreStride, kScoreStride);
    _tile_stored(3, scores + kSide * kScoreStride + 64, kScoreStride);
  }
  memory_barrier();
}

}  // namespace

void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args) { run_segment_attention<Tiles>(pool, args); }

const OpTable kOpTable = {.name = "amx", .segment_attention = {on_pool<segment_attention>, takes_segment_attention}};

}  // namespace ferry::FERRY_ISA_NAMESPACE
