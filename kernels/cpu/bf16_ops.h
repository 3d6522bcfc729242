#pragma once

#include "kernels/ops.h"

// Which arguments a unit that multiplies bf16 takes of the ops that it has; cpu_ops.h declares those.

namespace ferry::FERRY_ISA_NAMESPACE {

/// bf16, and heads of up to 256 columns.
bool takes_attention(const AttentionArgs& args);
bool takes_segments(const SegmentAttentionArgs& args);
/// bf16, and heads of whole tiles.
bool takes_delta_rule(const GatedDeltaRuleArgs& args);

}  // namespace ferry::FERRY_ISA_NAMESPACE
