#pragma once

#include "profiler/operator_facts.h"
#include "profiler/report/timeline/report_input.h"

// What operators come to, of what the processor multiplies at most and memory gives: constants of the machines that predictions
// were measured on, Zen 4 and Zen 5 with vectors and Sapphire Rapids with tiles.

namespace ferry {

/// Fewer weights than that lie in caches, so that reading them says nothing of memory.
inline constexpr double kCachedBytes = 64e6;

/// Rows of the largest steps that costs are continued to.
inline constexpr double kMostRows = 8192;

/// Whether products are made in tiles, which take as long for one row as for sixteen: AMX multiplies at 2 and more TFLOP/s on
/// each core, vectors at 0.1 to 0.4.
bool has_tiles(const ReportInput& input);

/// Whether it reads weights, its own or those of experts, and multiplies rows with them.
bool multiplies_weights(const OperatorFacts& facts);

/// Bytes of all weights that rows are multiplied with, where there are so many experts.
double weight_bytes(const CaptureInfo& info, double num_experts);

/// How quickly an operator's weights are read at least, bytes/s; 0 where memory's roof is not known. An operator is a short
/// stream: of memory it gets less than a long one, and more where all weights together lie in caches.
double streamed_bytes_per_s(const CaptureInfo& info);

/// FLOP/s of the coordinator's threads that its products of many rows come to; 0 where their roof is not known.
double reached_flops_per_s(const ReportInput& input, const OperatorFacts& facts);

}  // namespace ferry
