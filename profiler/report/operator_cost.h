#pragma once

#include <cstdint>

#include "profiler/capture.h"

namespace ferry {

/// What an operator must do at least, from its shapes: a multiply-add is two operations, every operand moves once.
struct OperatorCost {
  double flop = 0;
  double bytes = 0;
};

/// Cost of one span with arguments `a` and `b`; `num_sequences` >= 1 is its step's. 0 and 0 for zones without a formula; so
/// MoeDistributeDispatch, which sends a token once for all of its rows.
///
/// The delta rule counts 7 k_dim v_dim operations per row and head, what its recurrence needs, in the chunk form too.
/// Attention's b is rounded up to thousands, so short contexts count too much. Its cache is read once per sequence: exact when
/// every sequence has one row, the mean context for one prompt's rows, an estimate for a mixed step.
OperatorCost operator_cost(const ModelFacts& model, Zone zone, uint32_t a, uint32_t b, int64_t num_sequences);

}  // namespace ferry
