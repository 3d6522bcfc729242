#include "runtime/model/mixers/held_rows.h"

#include "runtime/base/check.h"

namespace ferry {

void copy_held_rows(Stream& stream, ConstMatrixView rows, const RecurrentState& state, std::byte* place) {
  FERRY_CHECK_LE(rows.rows, state.options().max_held);
  FERRY_CHECK(rows.dtype == state.options().dtype && rows.cols == state.options().conv_channels)
      << rows.cols << " columns for " << state.options().conv_channels;
  copy_rows(stream, rows, {place, rows.dtype, rows.rows, rows.cols, rows.cols, state.space()});
}

}  // namespace ferry
