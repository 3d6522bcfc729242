#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/types.h"
#include "runtime/model/layer_plan.h"

namespace ferry {

/// cos and sin of position x theta^(-2j / rotary_dim) for T rows, [T, rotary_dim / 2] each, rounded to `dtype`. `positions` are
/// [3, T]: time, height, width. Interleaved M-RoPE: frequency j reads the height if j mod 3 is 1 (and j < 3 * section[1]), the
/// width if it is 2 (and j < 3 * section[2]), else the time.
///
/// Frequencies and angles are fp32, as in transformers, which checkpoints are held against:
/// three roundings of 2^-24 each, by which an angle is up to 0.05 off at position 262143, the same in every implementation
/// that does so. cos and sin of that angle are the mathematical library's, to its last bit or two however large the angle is.
void fill_rotary_table(const AttentionPlan& plan, DType dtype, std::span<const int32_t> positions, float* cos, float* sin);

}  // namespace ferry
