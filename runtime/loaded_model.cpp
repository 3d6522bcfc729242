#include "runtime/loaded_model.h"

#include <cstdio>
#include <utility>

#include "runtime/base/error.h"

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
  const LoadOptions load = make_load_options(options, dtype, config, checkpoint, compute);
  weights = load_trunk(checkpoint, config, compute.backend, compute.pool, load);
  if (cluster.size() == 1) {
    local_experts =
        load_experts(checkpoint, config, make_expert_map(config, cluster), 0, compute.backend.matmul(), compute.pool, load);
  }
  if (load.progress) std::fputc('\n', stderr);
}

}  // namespace ferry
