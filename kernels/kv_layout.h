#pragma once

#include <cstdint>

#include "runtime/base/types.h"

// How keys and values lie in the paged cache. What one key head has of a block is a run, block_tokens rows of head_dim:
//
//   f32, bf16   [block_tokens, head_dim] values
//   i8          [block_tokens, head_dim] codes, and behind them [block_tokens, kv_groups(head_dim)] bytes, the exponents of
//               groups of 32 columns
//
// A code c of a group with exponent e stands for c 2^(e - 127); of a group with e = 0 for 0, with e = 255 for NaN. e is the
// least for which the group's largest magnitude is below 128 2^(e - 127), and codes are the nearest integers, ties to even, of
// -127 to 127. A group whose e would be below 1 becomes zeros with e = 0, one with a NaN or an infinity zeros with e = 255.
// So a row's codes depend on that row alone, and what they stand for has 7 bits: it is a bf16, exactly, and attention over
// codes has the bits of attention over a bf16 cache that holds the same values. Groups of 32 with a power of two are what the
// OCP's MX formats have (MXINT8): a scale of full precision for a whole row is off by as much in the mean (the largest of 256
// values is as far above the largest of 32 as a power of two is above what a group needs) and by more where a column stands
// out, as keys' do; and it would have to be multiplied into scores and weights, which are not exact then.

namespace ferry {

inline constexpr int64_t kKvGroupCols = 32;  // of codes that share an exponent
inline constexpr int kKvCodeBits = 7;        // of a magnitude
inline constexpr int kKvMostCode = 127;
inline constexpr uint8_t kKvNanExponent = 255;

/// Of a row of codes.
constexpr int64_t kv_groups(int64_t head_dim) { return (head_dim + kKvGroupCols - 1) / kKvGroupCols; }

/// Of a cache, as --kv-cache-dtype names it.
constexpr const char* kv_dtype_name(DType dtype) { return dtype == DType::kI8 ? "int8" : dtype_name(dtype); }

/// Bytes of what one key head has of a block, in a cache of this dtype.
constexpr int64_t kv_run_bytes(DType dtype, int64_t block_tokens, int64_t head_dim) {
  return block_tokens * (head_dim * dtype_bytes(dtype) + (dtype == DType::kI8 ? kv_groups(head_dim) : 0));
}

}  // namespace ferry
