#include "runtime/model/mixers/held_rows.h"

#include <cstring>

#include "runtime/base/check.h"

namespace ferry {

void copy_held_rows(ConstMatrixView rows, const RecurrentStateOptions& options, std::byte* to) {
  FERRY_CHECK_LE(rows.rows, options.max_held);
  FERRY_CHECK(rows.dtype == options.dtype && rows.cols == options.conv_channels)
      << rows.cols << " columns for " << options.conv_channels;
  const auto row_bytes = static_cast<std::size_t>(rows.cols * dtype_bytes(rows.dtype));
  for (int64_t r = 0; r < rows.rows; ++r)
    std::memcpy(to + static_cast<std::size_t>(r) * row_bytes, rows.row_bytes(r), row_bytes);
}

}  // namespace ferry
