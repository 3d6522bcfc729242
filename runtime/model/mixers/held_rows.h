#pragma once

#include "kernels/tensor.h"
#include "runtime/state/recurrent_state.h"

namespace ferry {

/// Copies `rows` [num_held, conv_channels] in the state's dtype to `to`, one of its places for held rows.
void copy_held_rows(ConstMatrixView rows, const RecurrentStateOptions& options, std::byte* to);

}  // namespace ferry
