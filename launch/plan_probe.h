#pragma once

#include "launch/plan_model.h"
#include "runtime/model/config.h"
#include "runtime/options/engine_options.h"
#include "runtime/plan/hosts_file.h"
#include "runtime/plan/plan_types.h"

// What steps of a model cost on this machine: its own operators on its own weights, for some seconds.

namespace ferry {

/// This machine, for runs such as `run`, of which `model` says what it needs: roofs, a link between two of its processes, and,
/// by running them, the costs of the coordinator's layers and of experts, as many as a quarter of the memory takes. On the CPU,
/// with all threads that `options` allow. Throws Error as loading does.
HostEntry measure_host(const EngineOptions& options, const ModelConfig& config, const PlanRun& run, const PlanModel& model);

}  // namespace ferry
