#include "kernels/cpu/bf16_delta_rule.h"
#include "kernels/cpu/bf16_ops.h"

// The gated delta rule with AVX-512 BF16.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int kDeltaRows = 8;  // rows and vectors of one tile: 8 x 2 registers of sums
constexpr int kTileVectors = 2;
static_assert(kTileVectors * kWords == kPairSide);

/// The tile of C at `row` and `col`. An element has one accumulator that takes the pairs in ascending k.
void multiply_tile(const PairProduct& p, int64_t row, int64_t col) {
  __m512 sums[kDeltaRows][kTileVectors];
  float* c = p.c + row * p.c_stride + col;
  const __m512 scale = _mm512_set1_ps(p.c_scale);
#pragma GCC unroll 8
  for (int r = 0; r < kDeltaRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) {
      sums[r][v] =
          p.c_scale == 0.0f ? _mm512_setzero_ps() : _mm512_mul_ps(_mm512_loadu_ps(c + r * p.c_stride + v * kWords), scale);
    }
  }
  const uint32_t* a = p.a + row * p.a_stride;
  const uint32_t* b = p.b + col;
  for (int64_t pair = 0; pair < p.num_pairs; ++pair, ++a, b += p.b_stride) {
    const __m512i right[kTileVectors] = {_mm512_loadu_si512(b), _mm512_loadu_si512(b + kWords)};
#pragma GCC unroll 8
    for (int r = 0; r < kDeltaRows; ++r) {
      const __m512i left = _mm512_set1_epi32(static_cast<int32_t>(a[r * p.a_stride]));
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) add_products(sums[r][v], left, right[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kDeltaRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) _mm512_storeu_ps(c + r * p.c_stride + v * kWords, sums[r][v]);
  }
}

struct DotProducts {
  static constexpr int64_t kRows = kDeltaRows;

  /// Columns outermost: a strip of B stays in the first-level cache.
  static void multiply(const PairProduct& p) {
    for (int64_t col = 0; col < p.n; col += kPairSide) {
      for (int64_t row = 0; row < p.m; row += kDeltaRows) multiply_tile(p, row, col);
    }
  }
};

}  // namespace

bool takes_delta_rule(const GatedDeltaRuleArgs& args) { return takes_bf16_delta_rule(args); }

void gated_delta_rule(ThreadPool& pool, const GatedDeltaRuleArgs& args) { run_bf16_delta_rule<DotProducts>(pool, args); }

}  // namespace ferry::FERRY_ISA_NAMESPACE
