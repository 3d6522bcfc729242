#pragma once

#include "profiler/operator_facts.h"
#include "profiler/report/timeline/report_input.h"

// What operators come to, of what the processor multiplies at most and memory gives: constants of the machines that predictions
// were measured on, Zen 4 with vectors and Sapphire Rapids with tiles.

namespace ferry {

/// Of memory's roof, by the short streams that an operator's weights are.
inline constexpr double kStreamed = 0.6;

/// Rows of the largest steps that costs are continued to.
inline constexpr double kMostRows = 8192;

/// Whether products are made in tiles, which take as long for one row as for sixteen: AMX multiplies at 2 and more TFLOP/s on
/// each core, vectors at 0.1 to 0.4.
bool has_tiles(const ReportInput& input);

/// Whether it reads weights, its own or those of experts, and multiplies rows with them.
bool multiplies_weights(const OperatorFacts& facts);

/// FLOP/s of the coordinator's threads that its products of many rows come to; 0 where their roof is not known.
double reached_flops_per_s(const ReportInput& input, const OperatorFacts& facts);

}  // namespace ferry
