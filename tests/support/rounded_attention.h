#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops.h"

// What attention over a bf16 cache comes to where a unit multiplies bf16: weights are rounded to bf16, up to a power of two,
// and divided by the sum of what was rounded. All else is as exact as doubles are.

namespace ferry::test {

/// Rows that attention may give.
struct RoundedAttention {
  Matrix out;    // [rows, num_heads * head_dim] f32; rows of no sequence are zeros
  Matrix slack;  // likewise: how far away an element may be, as weights next to the middle of two bf16 may become either
};

/// Of args.out the shape matters alone. The cache is the host's and bf16.
RoundedAttention rounded_attention(const AttentionArgs& args);

/// Empty if every element of the rows [first_row, first_row + num_rows) of `actual`, bf16, is within its slack, what rounding
/// to bf16 takes and `relative` of the largest expected magnitude; else which one is not.
std::string difference(const RoundedAttention& expected, ConstMatrixView actual, int64_t first_row, int64_t num_rows,
                       double relative);

}  // namespace ferry::test
