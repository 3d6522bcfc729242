#pragma once

#include <cstdint>
#include <optional>

#include "launch/plan_model.h"
#include "moe/expert_bank.h"
#include "runtime/model/trunk.h"
#include "runtime/model/weights_loader.h"
#include "runtime/options/engine_options.h"
#include "runtime/plan/plan_types.h"

// What parts of steps cost, each measured between the others: a step's own work, its experts, and what ranks that share this
// host add, processes with a socket each in their place.

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
  const PlanRun& run;
  int num_threads;
  int64_t workers;  // processes that answer over sockets, each with a slice of the experts; 0: this one computes them
};

/// Steps of some sizes, in some passes of which the fastest counts: other programs only slow a machine down. Which experts a
/// row takes is set so that all have as many. Throws Error as loading does, {kUnavailable} where ranks are
/// lost or no process can be had. To be called while this process has one thread.
RankCosts measure_steps(const StepProbeOptions& options, const ProbeWeights& weights);

}  // namespace ferry
