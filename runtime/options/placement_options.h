#pragma once

#include <cstdint>
#include <filesystem>

#include "moe/placement/spread.h"

namespace CLI {
class App;
}  // namespace CLI

namespace ferry {

/// Copies of experts beyond the first, as --redundancy says it.
struct RedundancyChoice {
  double share = 0;         // of a layer's experts
  int64_t extra_slots = 0;  // or so many
  bool is_twice = false;    // or two of each

  bool is_none() const { return share == 0 && extra_slots == 0 && !is_twice; }
  /// For layers of `num_experts`: shares are rounded up.
  Redundancy of(int64_t num_experts) const;
};

/// Which worker holds which experts, as --placement says it.
struct PlacementOptions {
  enum class Policy : uint8_t { kAuto, kContiguous, kEplb, kSpread, kFile };
  Policy policy = Policy::kAuto;  // kAuto: contiguous without copies and loads, else spread
  std::filesystem::path file;     // of kFile
  RedundancyChoice redundancy;
  int64_t rebalance_steps = 0;  // between two looks at where experts should be; 0: they move only when workers come or go
};

/// --placement, --redundancy and --rebalance.
void add_placement_options(CLI::App& app, PlacementOptions& options);

}  // namespace ferry
