#pragma once

#include <optional>
#include <span>

#include "moe/expert_placement.h"
#include "moe/placement/load_windows.h"
#include "runtime/model/config.h"
#include "runtime/options/placement_options.h"

namespace ferry {

/// The first placement of a job: what --placement and --redundancy come to for a model on these workers (at least one).
/// `loads`: what was asked of the experts in earlier runs, if that is known; without, all are alike. Throws
/// Error{kInvalidArgument} for copies that have no worker, a file of another model, or policies that do not go together.
ExpertPlacement choose_placement(const PlacementOptions& options, const ModelConfig& config, std::span<const Rank> workers,
                                 const std::optional<ExpertLoads>& loads);

/// Copies that later placements of the job are to have: those asked for, or that the first one has.
Redundancy redundancy_of(const ExpertPlacement& first, const PlacementOptions& options);

}  // namespace ferry
