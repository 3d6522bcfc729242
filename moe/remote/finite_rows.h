#pragma once

#include <cstdint>

#include "kernels/tensor.h"
#include "runtime/base/thread_pool.h"

namespace ferry {

/// Returns whether every value of `rows` [n, cols] f32 or bf16, which the host can read, is finite. The threads of `pool` share
/// many rows, so the caller's thread must be the one that uses the pool.
bool are_finite(ConstMatrixView rows, ThreadPool& pool);

/// Returns whether every value of row `row` is finite.
bool is_row_finite(ConstMatrixView rows, int64_t row);

}  // namespace ferry
