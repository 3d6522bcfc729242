#include "moe/remote/finite_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr int64_t kTaskBytes = int64_t{512} << 10;  // of rows; to wake a thread for less takes longer than to read them

/// The sign aside, a float's bits grow with its magnitude: infinity and NaN are the largest. `Bits` is the signed integer of a
/// value's size, `kInfinity` its bits of infinity. Each turn of the loop is one load, one mask and one maximum.
template <class Bits, Bits kInfinity, Bits kMagnitude>
bool are_values_finite(const std::byte* values, int64_t count) {
  Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, values + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    largest = std::max(largest, static_cast<Bits>(bits & kMagnitude));
  }
  return largest < kInfinity;
}

}  // namespace

bool is_row_finite(ConstMatrixView rows, int64_t row) {
  if (rows.dtype == DType::kF32) return are_values_finite<int32_t, 0x7f800000, 0x7fffffff>(rows.row_bytes(row), rows.cols);
  FERRY_CHECK(rows.dtype == DType::kBF16) << "rows of " << dtype_name(rows.dtype);
  return are_values_finite<int16_t, 0x7f80, 0x7fff>(rows.row_bytes(row), rows.cols);
}

bool are_finite(ConstMatrixView rows, ThreadPool& pool) {
  const int64_t row_bytes = std::max<int64_t>(1, rows.cols * dtype_bytes(rows.dtype));
  const int64_t task_rows = std::max<int64_t>(1, kTaskBytes / row_bytes);
  const int64_t num_tasks = (rows.rows + task_rows - 1) / task_rows;
  std::atomic<bool> is_all_finite = true;
  const auto look = [&](int64_t task, int) {
    const int64_t end = std::min(rows.rows, (task + 1) * task_rows);
    for (int64_t row = task * task_rows; row < end; ++row) {
      if (is_row_finite(rows, row)) continue;
      is_all_finite.store(false, std::memory_order_relaxed);
      return;
    }
  };
  if (num_tasks == 1) {
    look(0, 0);
  } else if (num_tasks > 1) {
    pool.parallel_for(num_tasks, look);
  }
  return is_all_finite.load(std::memory_order_relaxed);
}

}  // namespace ferry
