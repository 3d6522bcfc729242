#pragma once

#include "kernels/ops.h"

// What every implementation of an op asks of its arguments, as failed checks. Compiled once, for any processor: no instruction
// set's build has a copy of its own.

namespace ferry {

/// The same rows, columns and dtype.
void check_same_shape(const ConstMatrixView& a, const ConstMatrixView& b);

/// x, out and the residual, if there is one, have one shape; behind a residual there is no activation.
void check_bias_shape(const AddBiasArgs& args);

/// k and v have one shape, of whole heads of the cache's size, and its dtype unless that is codes; every sequence has a block
/// table.
void check_kv_append(const KvAppendArgs& args);

/// q, out and the cache have one dtype, or the cache codes; q and out are whole heads of its size, a whole number of them to a
/// key head, and every sequence has a block table.
void check_attention(const AttentionArgs& args);

/// q, k, v and out have one shape of whole heads, and the segments follow each other up to the last row.
void check_segments(const SegmentAttentionArgs& args);

/// Codes are 8 bits wide and as many as the rows of x need.
void check_quantized_shape(const QuantizeRowsArgs& args);

}  // namespace ferry
