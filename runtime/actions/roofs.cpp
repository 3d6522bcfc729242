#include "runtime/actions/roofs.h"

#include <algorithm>

namespace ferry {

bool has_tiles(const ReportInput& input) {
  constexpr double kLeast = 1e12;
  return input.capture.info.flops_per_s >= kLeast * std::max(1, input.capture.ranks.front().num_threads);
}

bool multiplies_weights(const OperatorFacts& facts) {
  const bool is_of_experts = zone_info(facts.zone).part == Part::kExperts && facts.bytes.per_b > 0;
  return facts.factors != Factors::kNone && (facts.bytes.fixed > 0 || is_of_experts);
}

double weight_bytes(const CaptureInfo& info, double num_experts) {
  double sum = 0;
  for (const OperatorFacts& facts : info.model.operators) {
    if (!multiplies_weights(facts)) continue;
    const double of_experts = zone_info(facts.zone).part == Part::kExperts ? num_experts * facts.bytes.per_b : 0;
    sum += static_cast<double>(facts.num_layers) * (facts.bytes.fixed + of_experts);
  }
  return sum;
}

double streamed_bytes_per_s(const CaptureInfo& info) {
  constexpr double kOfMemory = 0.6, kOfCaches = 1.5;  // of memory's roof
  const bool is_cached = weight_bytes(info, static_cast<double>(info.expert_rank.size())) < kCachedBytes;
  return (is_cached ? kOfCaches : kOfMemory) * info.read_bytes_per_s;
}

double reached_flops_per_s(const ReportInput& input, const OperatorFacts& facts) {
  // Tiles wait for what they are loaded with, and an expert has few of a step's rows.
  constexpr double kInVectors = 0.8, kExpertsInVectors = 0.5;
  constexpr double kInTiles = 0.2, kExpertsInTiles = 0.1;
  const bool is_of_experts = zone_info(facts.zone).part == Part::kExperts;
  const double in_vectors = is_of_experts ? kExpertsInVectors : kInVectors;
  const double in_tiles = is_of_experts ? kExpertsInTiles : kInTiles;
  return (has_tiles(input) ? in_tiles : in_vectors) * input.capture.info.flops_per_s;
}

}  // namespace ferry
