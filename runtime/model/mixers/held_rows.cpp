#include "runtime/model/mixers/held_rows.h"

#include "runtime/base/check.h"

namespace ferry {

void copy_held_rows(Stream& stream, ConstMatrixView rows, const RecurrentStateOptions& options, Address<std::byte> place) {
  FERRY_CHECK_LE(rows.rows, options.max_held);
  FERRY_CHECK(rows.dtype == options.dtype && rows.cols == options.conv_channels)
      << rows.cols << " columns for " << options.conv_channels;
  copy_rows(stream, rows, {place.raw(), rows.dtype, rows.rows, rows.cols, rows.cols, place.space()});
}

}  // namespace ferry
