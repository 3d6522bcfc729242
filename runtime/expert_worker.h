#pragma once

#include "runtime/cluster.h"
#include "runtime/options/engine_options.h"

namespace ferry {

/// A worker rank's whole life: load its slice of the experts, then answer the rows that coordinators send until the last has
/// gone. It knows steps and sources of tokens, no requests. Returns the exit code: 0 after a goodbye; throws Error for a bad
/// checkpoint or a lost coordinator.
int run_expert_worker(const EngineOptions& options, Cluster& cluster);

}  // namespace ferry
