#pragma once

#include <cstdint>
#include <optional>

#include "moe/expert_bank.h"
#include "runtime/model/trunk.h"
#include "runtime/model/weights_loader.h"
#include "runtime/options/engine_options.h"
#include "runtime/plan/plan_types.h"

// What parts of steps cost, each measured between the others: a step's own work, its experts, and what ranks that share this
// host add, threads with sockets of their own in their place.

namespace ferry {

/// The model's weights, but maybe not all of its experts.
struct ProbeWeights {
  Checkpoint checkpoint;
  LoadOptions load;
  TrunkWeights trunk;
  std::optional<ExpertBank> experts;  // of every layer as many, the first ones
};

struct StepProbeOptions {
  const EngineOptions& engine;
  const ModelConfig& config;
  DType dtype;
  int num_threads;
  int64_t workers;  // threads that answer over sockets, each with a slice of the experts; 0: this thread computes them
};

/// Steps of some sizes, in some passes of which the fastest counts: other programs only slow a machine down. Which experts a
/// row takes is set so that all have as many. Throws Error as loading does, {kUnavailable} where ranks are lost.
RankCosts measure_steps(const StepProbeOptions& options, const ProbeWeights& weights);

}  // namespace ferry
