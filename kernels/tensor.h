#pragma once

#include <cstdint>

#include "kernels/memory.h"
#include "runtime/base/check.h"
#include "runtime/base/types.h"

namespace ferry {

/// Borrows a row-major matrix whose rows may lie further apart than they are long. The owner must outlive the view. The host
/// may look at the elements of one in its own space only; implementations of ops use row_address().
template <bool kConst>
struct BasicMatrixView {
  using Byte = std::conditional_t<kConst, const std::byte, std::byte>;

  Byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;  // elements from one row to the next, >= cols
  Space space = Space::kHost;

  /// Element pointer to row `r`; T must be the view's dtype. For the host.
  template <class T>
  auto row(int64_t r) const {
    using Element = std::conditional_t<kConst, const T, T>;
    FERRY_CHECK(dtype_of<T>() == dtype);
    return reinterpret_cast<Element*>(row_bytes(r));
  }
  /// Likewise of any dtype.
  Byte* row_bytes(int64_t r) const {
    FERRY_CHECK(space == Space::kHost) << "the host may not touch a device's memory";
    return row_address(r);
  }
  /// Where row `r` begins in the view's space.
  Byte* row_address(int64_t r) const { return data + r * row_stride * dtype_bytes(dtype); }
  /// Rows [first, first + count).
  BasicMatrixView rows_from(int64_t first, int64_t count) const {
    FERRY_CHECK_LE(first + count, rows);
    return {row_address(first), dtype, count, cols, row_stride, space};
  }
  /// Columns [first, first + count).
  BasicMatrixView cols_from(int64_t first, int64_t count) const {
    FERRY_CHECK_LE(first + count, cols);
    return {data + first * dtype_bytes(dtype), dtype, rows, count, row_stride, space};
  }
  /// The same memory with each row cut into `parts` rows; needs evenly spaced pieces (row_stride divisible by parts).
  BasicMatrixView split_rows(int64_t parts) const {
    FERRY_CHECK_EQ(row_stride % parts, 0);
    FERRY_CHECK_EQ(cols, row_stride);
    return {data, dtype, rows * parts, cols / parts, row_stride / parts, space};
  }

  operator BasicMatrixView<true>() const requires(!kConst) { return {data, dtype, rows, cols, row_stride, space}; }
};

using MatrixView = BasicMatrixView<false>;
using ConstMatrixView = BasicMatrixView<true>;

/// Owns a dense row-major matrix, zeroed, 64-byte aligned. A step views the first `rows` of what was allocated at start.
class Matrix {
 public:
  Matrix() = default;
  Matrix(Memory& memory, DType dtype, int64_t rows, int64_t cols)
      : storage_(memory.allocate(static_cast<std::size_t>(rows * cols * dtype_bytes(dtype)))),
        dtype_(dtype),
        rows_(rows),
        cols_(cols) {}
  /// The host's.
  Matrix(DType dtype, int64_t rows, int64_t cols) : Matrix(host_memory(), dtype, rows, cols) {}

  MatrixView view() { return {storage_.address().raw(), dtype_, rows_, cols_, cols_, storage_.space()}; }
  ConstMatrixView view() const { return {storage_.address().raw(), dtype_, rows_, cols_, cols_, storage_.space()}; }
  MatrixView top(int64_t rows) { return view().rows_from(0, rows); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }

 private:
  Storage storage_;
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

}  // namespace ferry
