#include "kernels/cpu/dot_bf16.h"
#include "kernels/cpu/e4m3_panels.h"
#include "kernels/cpu/finish_tile.h"
#include "kernels/cpu/panel_passes.h"
#include "kernels/cpu/row_packer.h"

// bf16 products with AVX-512 BF16: pairs of k in ascending order.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

// 12 rows x 2 halves are 24 sums; weights take two more of the 32 registers, one the pair of x.
constexpr int kDotRows = 12;
constexpr int64_t kStepPairs = kLineBytes / 4;     // pairs of k in 64 bytes of a row
constexpr int64_t kStepElements = 2 * kStepPairs;  // elements
using TilePacker = RowPacker<kDotRows, 0>;

template <int kRows>
struct DotTile {
  /// sums [rows, 32] = rows x panel; k comes in `num_steps` steps of 64 bytes a row.
  template <Fetch kFetch>
  static void run(const TileRows& x, const std::byte* panel, int64_t num_steps, LineFetch<kFetch> fetch, float* sums) {
    __m512 acc[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    const std::byte* line = panel;
    for (int64_t step = 0; step < num_steps; ++step) {
      const std::byte* rows = x.data + step * x.step;
      for (int64_t pair = 0; pair < kStepPairs; ++pair, line += 2 * kLineBytes) {
        fetch.next(line);
        const __m512i low = _mm512_load_si512(line), high = _mm512_load_si512(line + kLineBytes);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          const __m512i values = _mm512_set1_epi32(load_word(rows + r * kLineBytes + 4 * pair));
          add_products(acc[r][0], values, low);
          add_products(acc[r][1], values, high);
        }
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(sums + r * kPanelCols, acc[r][0]);
      _mm512_storeu_ps(sums + r * kPanelCols + kHalfCols, acc[r][1]);
    }
  }
};

}  // namespace

void multiply_bf16(const MatmulBlock& block) {
  const TilePacker packer(block, kTurnTiles);
  alignas(64) float sums[kDotRows * kPanelCols];
  TileRows x[kTurnTiles];
  const auto begin = [&](int64_t row, int64_t rows, int64_t slot) { x[slot] = packer.begin(row, rows, slot); };
  for_each_pass<kDotRows>(block, begin, [&](const PanelPass& pass, auto fetch) {
    run_rows<DotTile, kDotRows>(pass.num_rows, x[pass.slot], pass.lines, packer.num_steps(), fetch, static_cast<float*>(sums));
    finish_tile(block, {sums, kPanelCols, pass.first_row, pass.num_rows, pass.panel});
    packer.prefetch(pass.next_row, pass.panel);
  });
}

void multiply_e4m3(const MatmulBlock& block) {
  const TilePacker packer(block);
  WidenedGroup widened;
  alignas(64) float sums[kDotRows * kPanelCols], group_sums[kDotRows * kPanelCols];
  const auto* lines = reinterpret_cast<const std::byte*>(widened.lines);
  const int64_t stride = panel_bytes(block.type, block.k);
  for_each_row_tile<kDotRows>(block.num_rows, [&](int64_t row, int64_t rows) {
    const TileRows x = packer.begin(row, rows);
    for (int64_t p = 0; p < block.num_panels; ++p) {
      std::memset(sums, 0, sizeof(sums));
      for_each_group(block, block.panels + p * stride, [&](const CodedGroup& group) {
        widen_group(group, widened);
        run_rows<DotTile, kDotRows>(rows, x.from(group.first_k / kStepElements), lines, group.num_k / kStepElements,
                                    LineFetch<Fetch::kNothing>{}, static_cast<float*>(group_sums));
        add_scaled(group, group_sums, sums, kPanelCols, rows);
      });
      finish_tile(block, {sums, kPanelCols, row, rows, p});
      packer.prefetch(row + rows, p);
    }
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
