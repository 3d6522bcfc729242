#include "kernels/stream.h"

#include <cstring>

#include "kernels/backend.h"

namespace ferry {

Memory& Stream::memory() const { return backend_.memory(); }

void Stream::copy(Address<const std::byte> from, Address<std::byte> to, std::size_t size) {
  if (size > 0) std::memcpy(to.host(), from.host(), size);
}

void Stream::clear(Address<std::byte> to, std::size_t size) {
  if (size > 0) std::memset(to.host(), 0, size);
}

void copy_rows(Stream& stream, ConstMatrixView from, MatrixView to) {
  FERRY_CHECK(from.dtype == to.dtype);
  FERRY_CHECK_EQ(from.rows, to.rows);
  FERRY_CHECK_EQ(from.cols, to.cols);
  const bool is_dense = from.row_stride == from.cols && to.row_stride == to.cols;
  const int64_t num_pieces = is_dense ? 1 : from.rows, piece_rows = is_dense ? from.rows : 1;
  const auto piece_bytes = static_cast<std::size_t>(piece_rows * from.cols * dtype_bytes(from.dtype));
  for (int64_t i = 0; i < num_pieces; ++i)
    stream.copy({from.row_address(i), from.space}, {to.row_address(i), to.space}, piece_bytes);
}

}  // namespace ferry
