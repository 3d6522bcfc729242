#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "moe/expert_placement.h"
#include "moe/placement/load_windows.h"
#include "profiler/run_watch.h"
#include "runtime/cluster.h"
#include "runtime/compute_device.h"
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
class ComputeResources {
 public:
  /// Throws what open_compute_device() and select_backend() do. The coordinator says on stderr what it computes on if that
  /// is a device, or was to be one.
  ComputeResources(const EngineOptions& options, const RankPlace& place, DType dtype);

  /// Throws Error{kResourceExhausted} with `what` if `bytes` of where weights, caches and rows lie are not there now.
  void require_memory(int64_t bytes, const std::string& what) const;

  RunWatch watch;
  PoolTrace pool_trace;
  ThreadPool pool;
  const std::optional<ComputeDevice> device;  // absent: the CPU

 private:
  const std::optional<Backend> cpu_;  // absent: the device's
  const std::unique_ptr<Stream> own_stream_;

 public:
  const Backend& backend;
  Stream& stream;
};

/// Which ranks hold which routed experts at first: the workers as `options` say, or this process when it is alone. Throws Error
/// if there are more workers than experts, and as choose_placement() does; a dense model has the slices of its networks, if
/// they can be cut. `config` says whether there is an MTP layer (choose_speculation); `loads` is what earlier runs have
/// left.
ExpertPlacement first_placement(const EngineOptions& options, const ModelConfig& config, const Cluster& cluster,
                                const std::optional<ExpertLoads>& loads = std::nullopt);

/// Tells every worker what it is to hold; no placement: that there will be none, since the coordinator failed. Waits for the
/// messages to leave.
void send_assignments(Cluster& cluster, const ExpertPlacement* placement);
/// A worker waits for that of each coordinator before it does anything that could fail: the message, for decode_assignment().
std::vector<std::byte> receive_assignment(Cluster& cluster, Rank coordinator);

/// For a coordinator that fails with `own` before it has met the others in Cluster::agree(): goes there, so that all hear of it
/// and leave with one error, which it returns; Cluster::first_tells() then. Of any other rank, and where somebody is gone, it
/// is `own`. Waits for ranks that load, as agree() does.
Error agree_on_failure(Cluster& cluster, const Error& own);

/// What --speculate comes to with this checkpoint, kAuto included, and whether the MTP layer is to be loaded (config.mtp, which
/// is all that workers need to know). Throws Error{kInvalidArgument} if the MTP layer is asked for and there is none.
Speculation choose_speculation(const EngineOptions& options, const Checkpoint& checkpoint, ModelConfig& config);

/// The term of a run whose MTP layer is loaded.
inline constexpr const char* kHasMtpTerm = "an MTP layer to guess with";

/// What a worker and the coordinator must have in common, or the rows between them would be misread, or computed differently:
/// which they may be where one of them computes on a device.
Cluster::Terms make_terms(const EngineOptions& options, const ModelConfig& config, const Quantization& quantization,
                          const ComputeResources& compute);

/// Of what a rank computes with, as a number: ranks of one voice compute the same bits from the same weights.
uint64_t voice_of(const ComputeResources& compute);

/// How the weights of a run are to be held, native ones by their types. Throws Error for a folder of packed weights that holds
/// other ones than options ask for.
WeightPlan plan_run_weights(const EngineOptions& options, const ModelConfig& config, const Checkpoint& checkpoint);

/// How this rank reads weights, without anything that hears of its progress. `compute` outlives the result. Throws what
/// plan_run_weights() does.
LoadOptions make_load_options(const EngineOptions& options, DType dtype, const ModelConfig& config,
                              const Checkpoint& checkpoint, const ComputeResources& compute);

}  // namespace ferry
