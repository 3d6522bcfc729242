#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/panel_layout.h"
#include "runtime/base/types.h"

// What the two halves of the own matrix product share: matmul.cpp packs weights and cuts a call into blocks; the kernels, each
// compiled for its instruction set, compute a block.
//
// Order of summation. f32 and bf16: a sum takes its products in a fixed order along k that depends on the kernel, never on the
// rows of the block or on how a call was cut. int8: sums of codes are exact. int4: sums within a group are exact, groups are
// added in ascending k. So integer products have the same bits with every kernel. e4m3: a sum for each group as of bf16
// weights, groups in ascending k.

namespace ferry {

struct ProductFinish;

/// Rows of x times neighbouring panels of one matrix.
struct MatmulBlock {
  const std::byte* x = nullptr;     // [num_rows, k] of x_dtype; int8 is padded to kRowAlignment
  DType x_dtype = DType::kF32;      // that of plain weights, kI8 for integers, f32 or bf16 for e4m3
  int64_t x_stride = 0;             // bytes
  const float* x_scales = nullptr;  // [num_rows], for int8 rows
  const std::byte* panels = nullptr;
  int64_t num_panels = 0;
  WeightType type;
  int64_t stream_distance = 0;  // of type (stream_distance.h)
  int64_t k = 0;
  std::byte* out = nullptr;  // [num_rows, num_cols] of out_dtype: the first panel's first column
  int64_t out_stride = 0;    // elements
  int64_t num_rows = 0;
  int64_t num_cols = 0;  // up to num_panels * 32; of a gated matrix up to num_panels * 16
  DType out_dtype = DType::kF32;
  bool is_gated = false;                  // out = T(T(silu(T(gate))) * T(up)), T being out's type, instead of the products
  const ProductFinish* finish = nullptr;  // of the call, if it has a bias
  int64_t first_row = 0, first_col = 0;   // of this block's out in the call's
};

/// Kernels by format of the weights.
struct MatmulKernels {
  using BlockFn = void (*)(const MatmulBlock&);

  const char* name;  // "amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2"
  BlockFn f32, bf16, int8, int4;
  BlockFn e4m3;      // with rows of bf16
  BlockFn e4m3_f32;  // with rows of f32
  // Rows that a block should have at most, where more of them cost more than reading its panels again; 0: any number.
  int64_t most_rows = 0;

  BlockFn of(WeightFormat format, DType x_dtype) const {
    switch (format) {
      case WeightFormat::kF32: return f32;
      case WeightFormat::kBF16: return bf16;
      case WeightFormat::kInt8: return int8;
      case WeightFormat::kInt4: return int4;
      case WeightFormat::kE4M3: return x_dtype == DType::kF32 ? e4m3_f32 : e4m3;
    }
    return nullptr;
  }
};

/// What this processor can run, best first.
std::vector<MatmulKernels> available_matmul_kernels();

namespace cpu_avx2 {
void multiply_f32(const MatmulBlock& block);
void multiply_bf16(const MatmulBlock& block);
void multiply_e4m3(const MatmulBlock& block);
void multiply_int8(const MatmulBlock& block);
void multiply_int4(const MatmulBlock& block);
}  // namespace cpu_avx2
namespace cpu_avx512 {
void multiply_f32(const MatmulBlock& block);
void multiply_bf16(const MatmulBlock& block);
void multiply_e4m3(const MatmulBlock& block);
}  // namespace cpu_avx512
namespace cpu_avx512_bf16 {
void multiply_bf16(const MatmulBlock& block);
void multiply_e4m3(const MatmulBlock& block);
}  // namespace cpu_avx512_bf16
namespace cpu_avx512_vnni {
void multiply_int8(const MatmulBlock& block);
void multiply_int4(const MatmulBlock& block);
}  // namespace cpu_avx512_vnni
namespace cpu_amx {
void multiply_bf16(const MatmulBlock& block);
void multiply_e4m3(const MatmulBlock& block);
void multiply_int8(const MatmulBlock& block);
void multiply_int4(const MatmulBlock& block);
}  // namespace cpu_amx

}  // namespace ferry
