#pragma once

#include "kernels/stream.h"
#include "runtime/state/recurrent_state.h"

namespace ferry {

/// Copies `rows` [num_held, conv_channels] in the state's dtype to one of its places for held rows.
void copy_held_rows(Stream& stream, ConstMatrixView rows, const RecurrentStateOptions& options, Address<std::byte> place);

}  // namespace ferry
