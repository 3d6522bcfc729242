#include "runtime/loaded_model.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/memory_use.h"
#include "runtime/model/expert_loader.h"

namespace ferry {

LoadedTokenizer load_tokenizer(const EngineOptions& options) {
  try {
    return {.tokenizer = Tokenizer::load(options.model), .complaint = ""};
  } catch (const Error& error) {
    return {.tokenizer = std::nullopt, .complaint = error.what()};
  }
}

LoadedModel::LoadedModel(const EngineOptions& options, const Cluster& cluster, const ModelConfig& config, DType dtype,
                         ComputeResources& compute, Checkpoint opened)
    : checkpoint(std::move(opened)) {
  LoadOptions load = make_load_options(options, dtype, config, checkpoint, compute);
  const auto tell = std::exchange(load.progress, {});
  load.progress = [&](int64_t bytes) {
    load_count.bytes += bytes;
    if (tell) tell(bytes);
  };
  const auto start = std::chrono::steady_clock::now();
  const MemoryUseScope use(MemoryUse::kWeights);
  weights = load_trunk(checkpoint, config, compute.backend, compute.pool, load);
  if (cluster.num_workers() == 0) {
    const ExpertLoader experts(checkpoint, config, compute.backend.matmul(), load);
    local_experts = experts.load_all(first_placement(options, config, cluster).experts_of(0), compute.pool);
  }
  load_count.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (tell) std::fputc('\n', stderr);
}

}  // namespace ferry
