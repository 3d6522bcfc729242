#pragma once

#include <chrono>
#include <memory>

#include "kernels/backend.h"
#include "moe/expert_map.h"
#include "profiler/run_watch.h"
#include "runtime/cluster.h"
#include "runtime/model/config.h"
#include "runtime/model/weights_loader.h"
#include "runtime/options/engine_options.h"
#include "runtime/trace/pool_trace.h"

// What coordinator and expert workers set up alike before they work together.

namespace ferry {

constexpr std::chrono::minutes kLoadTimeout{30};     // for the slowest rank to load its weights
constexpr std::chrono::seconds kKeepAlivePeriod{5};  // an idle coordinator says that it is alive at least so often

std::chrono::milliseconds to_milliseconds(double seconds);

/// Threads of a rank, what it computes with, and its work.
struct ComputeResources {
  ComputeResources(const EngineOptions& options, const Cluster& cluster, DType dtype);

  RunWatch watch;
  PoolTrace pool_trace;
  ThreadPool pool;
  Backend backend;
  Stream stream;
};

/// Which ranks hold the routed experts: the workers, or this process when it is alone. Throws Error if there are more workers
/// than experts; a dense model has the slices of its networks, if they can be cut.
ExpertMap make_expert_map(const ModelConfig& config, const Cluster& cluster);

/// What --speculate comes to with this checkpoint, kAuto included, and whether the MTP layer is to be loaded (config.mtp, which
/// is all that workers need to know). Throws Error{kInvalidArgument} if the MTP layer is asked for and there is none.
Speculation choose_speculation(const EngineOptions& options, const Checkpoint& checkpoint, ModelConfig& config);

/// What a worker and the coordinator must have in common, or the rows between them would be misread, or computed differently.
Cluster::Terms make_terms(const EngineOptions& options, const ModelConfig& config, const Quantization& quantization,
                          const ComputeResources& compute);

/// Says on stderr how loading goes; one line, rewritten in place on a terminal. Throws Error for a folder of packed weights
/// that holds other ones than options ask for.
LoadOptions make_load_options(const EngineOptions& options, DType dtype, const ModelConfig& config,
                              const Checkpoint& checkpoint);

}  // namespace ferry
