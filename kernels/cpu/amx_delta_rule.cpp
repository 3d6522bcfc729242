#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/bf16_delta_rule.h"
#include "kernels/cpu/bf16_ops.h"

// The gated delta rule on AMX tiles.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// Leaves A B of 32 rows and 32 columns in tiles 0 ‥ 3: [half of the rows][half of the columns].
void multiply_square(const PairProduct& p, int64_t row, int64_t col) {
  const uint32_t* a = p.a + row * p.a_stride;
  const uint32_t* b = p.b + col;
  const int64_t a_bytes = p.a_stride * 4, b_bytes = p.b_stride * 4;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t pair = 0; pair < p.num_pairs; pair += kPairBlock, a += kPairBlock, b += kPairBlock * p.b_stride) {
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(5, a + kTileSide * p.a_stride, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_loadd(7, b + kTileSide, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

/// Writes tiles 0 ‥ 3 to rows of floats, `stride` floats apart.
void store_square(float* to, int64_t stride) {
  _tile_stored(0, to, stride * 4);
  _tile_stored(1, to + kTileSide, stride * 4);
  _tile_stored(2, to + kTileSide * stride, stride * 4);
  _tile_stored(3, to + kTileSide * stride + kTileSide, stride * 4);
}

/// C = c_scale C + `sums`, which are a square's.
void add_square(const PairProduct& p, const float* sums, int64_t row, int64_t col) {
  const F32x16 scale(p.c_scale);
  for (int64_t r = 0; r < kPairSide; ++r) {
    float* c = p.c + (row + r) * p.c_stride + col;
    for (int64_t i = 0; i < kPairSide; i += kLanes) store(c + i, fma(load(c + i), scale, load(sums + r * kPairSide + i)));
  }
}

struct TileProducts : WholeTiles {
  static constexpr int64_t kRows = kPairSide;

  static void multiply(const PairProduct& p) {
    alignas(64) float sums[kPairSide * kPairSide];
    memory_barrier();
    for (int64_t col = 0; col < p.n; col += kPairSide) {
      for (int64_t row = 0; row < p.m; row += kPairSide) {
        multiply_square(p, row, col);
        if (p.c_scale == 0.0f) {
          store_square(p.c + row * p.c_stride + col, p.c_stride);
        } else {
          store_square(sums, kPairSide);
          memory_barrier();
          add_square(p, sums, row, col);
          memory_barrier();
        }
      }
    }
    memory_barrier();
  }
};

}  // namespace

bool takes_delta_rule(const GatedDeltaRuleArgs& args) { return takes_bf16_delta_rule(args); }

void gated_delta_rule(ThreadPool& pool, const GatedDeltaRuleArgs& args) { run_bf16_delta_rule<TileProducts>(pool, args); }

}  // namespace ferry::FERRY_ISA_NAMESPACE
