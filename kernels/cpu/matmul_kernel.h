#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/types.h"

// What the two halves of the own packed matrix product share: matmul.cpp packs weights and cuts a call into blocks;
// matmul_kernel.cpp, compiled once per instruction set, computes a block.
//
// Layout of a packed matrix W [n, k]: panels of 32 output columns, the last one padded with zeros. Within a panel, for each k:
//   f32:   32 floats, column 0 ‥ 31
//   bf16:  16 words of 32 bits; word j holds column j in its lower half and column j + 16 in its upper half, so that one shift
//          and one mask turn a register of words into two registers of floats

namespace ferry {

inline constexpr int64_t kPanelCols = 32;
inline constexpr int64_t kMaxBlockRows = 64;   // rows of x in a block
inline constexpr int64_t kMaxBlockPanels = 8;  // with 64 rows: 64 KiB of fp32 sums
inline constexpr int64_t kMatmulBlockK =
    256;  // a panel's slice is 16 (bf16) or 32 KiB (f32): it stays in the first-level cache

/// Rows of x times neighbouring panels: out[r, c] = T(sum_k x[r, k] W[c, k]).
struct MatmulBlock {
  const std::byte* x;       // [num_rows, k] T
  int64_t x_stride;         // elements
  const std::byte* panels;  // the first panel, layout as above
  std::byte* out;           // [num_rows, num_cols] T: the first panel's first column
  int64_t out_stride;       // elements
  int64_t num_rows;         // 1 ‥ kMaxBlockRows
  int64_t num_cols;         // 1 ‥ kMaxBlockPanels * kPanelCols
  int64_t k;
  DType dtype;  // T, of x, weights and out
};

namespace cpu_avx2 {
void matmul_block(const MatmulBlock& block);
}
namespace cpu_avx512 {
void matmul_block(const MatmulBlock& block);
}

}  // namespace ferry
