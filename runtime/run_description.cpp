#include "runtime/run_description.h"

#include "runtime/command_line.h"
#include "runtime/model/operators.h"
#include "runtime/version.h"

namespace ferry {

ModelInfo describe_model(const ModelConfig& config, DType dtype, DType kv_dtype, const SchedulerOptions& limits,
                         const Cluster& cluster) {
  return {.name = config.name,
          .architecture = config.class_name,
          .dtype = dtype,
          .kv_cache_dtype = kv_dtype,
          .vocab_size = config.vocab_size,
          .context_length = limits.max_context,
          .num_layers = config.num_layers(),
          .hidden_dim = config.hidden_dim,
          .num_experts = config.is_dense() ? 0 : config.moe.num_experts,
          .experts_per_token = config.is_dense() ? 0 : config.moe.top_k,
          .num_expert_workers = cluster.num_workers(),
          .transport = cluster.transport(),
          .takes_priorities = limits.policy.policy == SchedulingPolicy::kPriority,
          .generation = config.generation};
}

CaptureInfo describe_run(const ModelConfig& config, DType dtype, DType kv_dtype, const Quantization& quantization,
                         const SchedulerOptions& limits, const Cluster& cluster) {
  CaptureInfo info{.version = version_number(),
                   .command = command_line(),
                   .transport = cluster.transport(),
                   .model = {.name = config.name,
                             .dtype = dtype_name(dtype),
                             .top_k = config.moe.top_k,
                             .operators = describe_operators(config, quantization, dtype, kv_dtype)}};
  for (const LayerPlan& layer : config.layers) info.model.layer_types.emplace_back(mixer_name(layer.mixer));
  if (config.mtp) info.model.layer_types.emplace_back("mtp");
  info.max_running_requests = limits.max_running;
  info.num_kv_blocks = limits.num_blocks;
  return info;
}

RoutingShape routing_shape(const ModelConfig& config) {
  RoutingShape shape{.model = config.name, .num_experts = config.moe.num_experts, .top_k = config.moe.top_k, .layers = {}};
  for (int64_t i = 0; i < config.num_layers() && !config.is_dense(); ++i)
    if (config.layers[static_cast<std::size_t>(i)].ffn == Ffn::kMixtureOfExperts) shape.layers.push_back(i);
  return shape;
}

}  // namespace ferry
