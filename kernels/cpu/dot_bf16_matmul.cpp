#include <immintrin.h>

#include "kernels/cpu/finish_tile.h"
#include "kernels/cpu/row_tiles.h"

// bf16 products with AVX-512 BF16: vdpbf16ps adds the products of a pair of k to each of 16 sums, pairs in ascending order.
// The instruction rounds to nearest even and treats denormals as zeros.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

// 12 rows x 2 halves are 24 sums; weights take two more of the 32 registers, x comes from memory as an operand.
constexpr int kTileRows = 12;

struct TileInput {
  const std::byte* x;  // first row of the tile
  int64_t x_stride;    // bytes
  const std::byte* panel;
  int64_t k;
  float* sums;  // [rows, 32]
};

template <int kRows>
struct DotTile {
  [[gnu::always_inline]] static void step(__m512 (&acc)[kRows][2], const std::byte* line, const int32_t (&x)[kRows]) {
    const auto low = (__m512bh)_mm512_load_si512(line), high = (__m512bh)_mm512_load_si512(line + kLineBytes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const auto pair = (__m512bh)_mm512_set1_epi32(x[r]);
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], pair, low);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], pair, high);
    }
  }

  static void run(const TileInput& in) {
    __m512 acc[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    const std::byte* line = in.panel;
    int32_t x[kRows];
    for (int64_t pair = 0; pair < in.k / 2; ++pair, line += 2 * kLineBytes) {
      prefetch_stream(line);
      prefetch_stream(line + kLineBytes);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) std::memcpy(&x[r], in.x + r * in.x_stride + 4 * pair, 4);
      step(acc, line, x);
    }
    if (in.k % 2 == 1) {  // nothing is read behind the last element
      for (int r = 0; r < kRows; ++r) {
        uint16_t last;
        std::memcpy(&last, in.x + r * in.x_stride + 2 * (in.k - 1), 2);
        x[r] = last;
      }
      step(acc, line, x);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(in.sums + r * kPanelCols, acc[r][0]);
      _mm512_storeu_ps(in.sums + r * kPanelCols + kHalfCols, acc[r][1]);
    }
  }
};

}  // namespace

void multiply_bf16(const MatmulBlock& block) {
  alignas(64) float sums[kTileRows * kPanelCols];
  const int64_t stride = panel_bytes(block.type, block.k);
  for_each_row_tile<kTileRows>(block.num_rows, [&](int64_t row, int64_t rows) {
    for (int64_t p = 0; p < block.num_panels; ++p) {
      const TileInput in{block.x + row * block.x_stride, block.x_stride, block.panels + p * stride, block.k, sums};
      run_rows<DotTile, kTileRows>(rows, in);
      finish_tile(block, {sums, kPanelCols, row, rows, p});
    }
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
