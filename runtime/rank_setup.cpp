#include "runtime/rank_setup.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "profiler/recorder.h"
#include "runtime/base/error.h"

namespace ferry {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

ComputeResources::ComputeResources(const EngineOptions& options, const Cluster& cluster, DType dtype)
    : pool(options.threads > 0 ? options.threads : cluster.default_threads(), cluster.thread_spin(), &pool_trace),
      backend(select_backend(options.kernels, options.matmul, dtype)),
      stream(backend, pool) {
  recorder().set_idle_level(options.profile == "off" ? TraceLevel::kOff : static_cast<TraceLevel>(options.profile[0] - '0'));
}

[[noreturn]] void refuse_workers(const ModelConfig& config, int64_t num_workers) {
  const std::string most = std::to_string(config.moe.num_experts), width = std::to_string(config.moe.intermediate_dim),
                    columns = std::to_string(config.dense.intermediate_dim);
  const std::string why =
      config.moe.is_sliced
          ? ", a dense model whose networks of " + columns + " columns are shared out in " + most + " slices of " + width +
                "; allowed: up to " + most + " workers"
          : ", a dense model whose networks of " + columns + " columns cannot be cut into equal slices; allowed: one process";
  throw_invalid(std::to_string(num_workers) + " expert workers for " + config.name + why);
}

ExpertMap make_expert_map(const ModelConfig& config, const Cluster& cluster) {
  std::vector<Rank> ranks;
  for (int32_t r = cluster.num_workers() > 0 ? 1 : 0; r < cluster.size(); ++r) ranks.push_back({r});
  if (config.is_dense() && cluster.num_workers() > config.moe.num_experts) refuse_workers(config, cluster.num_workers());
  return ExpertMap::contiguous(config.moe.num_experts, ranks);
}

Speculation choose_speculation(const EngineOptions& options, const Checkpoint& checkpoint, ModelConfig& config) {
  constexpr int64_t kAutoDrafts = 3;  // at most
  Speculation chosen = options.speculation;
  if (chosen.source == Speculation::Source::kNgram || (chosen.source == Speculation::Source::kMtp && chosen.max_drafts == 0))
    return chosen;
  const bool is_auto = chosen.source == Speculation::Source::kAuto;
  const std::string lack = lacks_mtp(checkpoint, config, plan_weights(options.model, options.quantization));
  config.mtp = lack.empty();
  if (config.mtp) return is_auto ? Speculation{Speculation::Source::kAuto, kAutoDrafts} : chosen;
  if (is_auto) return {};
  throw_invalid("--speculate is " + std::to_string(chosen.max_drafts) + ", but " + lack +
                "; allowed: 0, auto, or ngram:1 to ngram:8");
}

Cluster::Terms make_terms(const EngineOptions& options, const ModelConfig& config, const Quantization& quantization,
                          const ComputeResources& compute) {
  const MoePlan& moe = config.moe;
  return {std::string("--dtype ") + dtype_name(options.dtype.value_or(config.dtype)),
          "--token-budget " + std::to_string(options.token_budget),
          std::string("--combine ") + (options.combine == CombineMode::kFast ? "fast" : "exact"),
          "--quantize " + quantization_name(quantization),
          std::string("--kernels ") + compute.backend.kernels_name(),
          std::string("--matmul ") + compute.backend.matmul().name(),
          "a config.json with " + std::to_string(config.num_layers()) + " layers of width " +
              std::to_string(config.hidden_dim) + " and " + std::to_string(moe.num_experts) + " experts of width " +
              std::to_string(moe.intermediate_dim) + ", " + std::to_string(moe.top_k) + " per token",
          config.mtp ? "an MTP layer to guess with" : "no MTP layer to guess with"};
}

LoadOptions make_load_options(const EngineOptions& options, DType dtype, const ModelConfig& config,
                              const Checkpoint& checkpoint) {
  LoadOptions load{.dtype = dtype,
                   .weights = plan_weights(options.model, options.quantization),
                   .check_finite = options.check_weights,
                   .progress = {}};
  load.weights.quantization = resolve_quantization(checkpoint, config, load.weights.quantization);
  if (isatty(STDERR_FILENO) == 0) return load;
  load.progress = [total = int64_t{0}, start = std::chrono::steady_clock::now()](int64_t bytes) mutable {
    total += bytes;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds > 0.5)
      std::fprintf(stderr, "\rferry: packed %.2f GB in %.1f s\033[K", static_cast<double>(total) * 1e-9, seconds);
  };
  return load;
}

}  // namespace ferry
