#include "runtime/loaded_model.h"

#include <chrono>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/memory_use.h"
#include "runtime/model/expert_loader.h"

namespace ferry {

LoadedTokenizer load_tokenizer(const EngineOptions& options) {
  try {
    return {.tokenizer = Tokenizer::load(options.model), .complaint = {}};
  } catch (const Error& error) {
    return {.tokenizer = std::nullopt, .complaint = error};
  }
}

void require_usable(const LoadedTokenizer& tokenizer) {
  if (tokenizer.complaint && tokenizer.complaint->code() != ErrorCode::kNotFound) throw Error(*tokenizer.complaint);
}

LoadedModel::LoadedModel(const EngineOptions& options, const Cluster& cluster, const ModelConfig& config, DType dtype,
                         ComputeResources& compute, Checkpoint opened, LoadProgress& progress)
    : checkpoint(std::move(opened)) {
  LoadOptions load = make_load_options(options, dtype, config, checkpoint, compute);
  load.progress = [&](int64_t bytes) { progress.add(bytes); };
  load.expect = [&](int64_t bytes) { progress.expect(bytes); };
  const auto start = std::chrono::steady_clock::now();
  const MemoryUseScope use(MemoryUse::kWeights);
  const bool is_alone = cluster.num_workers() == 0;
  std::optional<ExpertLoader> experts;
  RankExperts held;
  if (is_alone) {
    experts.emplace(checkpoint, config, compute.backend.matmul(), load);
    held = first_placement(options, config, cluster).experts_of(0);
    progress.expect(experts->stored_bytes(held));
  }
  weights = load_trunk(checkpoint, config, compute.backend, compute.pool, load);
  if (is_alone) local_experts = experts->load_all(held, compute.pool);
  progress.finish();
  load_count.bytes = progress.state().done_bytes;
  load_count.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ferry
