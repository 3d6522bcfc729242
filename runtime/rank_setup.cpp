#include "runtime/rank_setup.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "moe/assignment.h"
#include "profiler/recorder.h"
#include "runtime/base/available_memory.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/placement_choice.h"

namespace ferry {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

namespace {

/// What --device comes to on this rank. Of what every rank would say, the coordinator's word is enough.
std::optional<ComputeDevice> open_device(const EngineOptions& options, const RankPlace& place, DType dtype) {
  std::string why_cpu;
  std::optional<ComputeDevice> device =
      open_compute_device(options.device, place.local_rank, dtype, options.cache_folder, why_cpu);
  if (device && !device->warning().empty()) std::fprintf(stderr, "ferry: warning: %s\n", one_line(device->warning()).c_str());
  if (!place.is_coordinator()) return device;
  if (device) std::fprintf(stderr, "ferry: computing on %s\n", device->describe().c_str());
  if (!why_cpu.empty()) std::fprintf(stderr, "ferry: --device auto: computing on the CPU: %s\n", one_line(why_cpu).c_str());
  return device;
}

int count_threads(const EngineOptions& options, const CorePolicy& cores) {
  return options.threads > 0 ? options.threads : cores.default_threads();
}

std::optional<Backend> cpu_backend(const EngineOptions& options, const std::optional<ComputeDevice>& device, DType dtype) {
  if (device) return std::nullopt;
  return select_backend(options.kernels, options.matmul, dtype);
}

}  // namespace

ComputeResources::ComputeResources(const EngineOptions& options, const RankPlace& place, DType dtype)
    : pool(count_threads(options, place.cores), place.cores.thread_spin(count_threads(options, place.cores)), &pool_trace),
      device(open_device(options, place, dtype)),
      cpu_(cpu_backend(options, device, dtype)),
      own_stream_(device ? device->open->make_stream(pool) : std::make_unique<Stream>(*cpu_, pool)),
      backend(device ? device->open->backend() : *cpu_),
      stream(*own_stream_) {
  recorder().set_idle_level(options.profile == "off" ? TraceLevel::kOff : static_cast<TraceLevel>(options.profile[0] - '0'));
}

void ComputeResources::require_memory(int64_t bytes, const std::string& what) const {
  if (device) return device->require_memory(bytes, what);
  ferry::require_memory(bytes, what);
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

ExpertPlacement first_placement(const EngineOptions& options, const ModelConfig& config, const Cluster& cluster,
                                const std::optional<ExpertLoads>& loads) {
  if (cluster.num_workers() == 0) {
    const Rank here{0};
    return ExpertPlacement::contiguous(std::max<int64_t>(config.num_expert_layers(), 1), config.moe.num_experts, {&here, 1});
  }
  std::vector<Rank> workers;
  for (int32_t r = 1; r <= cluster.num_workers(); ++r) workers.push_back({r});
  if (cluster.size() == 1) {  // workers are yet to come: who holds what is decided anew with each
    if (options.placement.policy == PlacementOptions::Policy::kFile)
      throw_invalid("--placement " + options.placement.file.string() + " with --elastic and no workers; allowed: under mpirun");
    return ExpertPlacement::contiguous(std::max<int64_t>(config.num_expert_layers(), 1), config.moe.num_experts, workers);
  }
  if (config.is_dense() && cluster.num_workers() > config.moe.num_experts) refuse_workers(config, cluster.num_workers());
  return choose_placement(options.placement, config, workers, loads);
}

namespace {

constexpr std::size_t kMostAssignmentBytes = std::size_t{16} << 20;

}  // namespace

void send_assignments(Cluster& cluster, const ExpertPlacement* placement) {
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::unique_ptr<PendingOp>> sends;
  for (int32_t r = 1; r < cluster.size(); ++r) {
    const RankExperts experts = placement == nullptr ? RankExperts() : placement->experts_of(r - 1);
    messages.push_back(
        encode_assignment({.epoch = placement == nullptr ? 0 : placement->epoch(), .experts = experts, .canaries = {}}));
    if (messages.back().size() > kMostAssignmentBytes)
      throw_invalid("a placement of " + std::to_string(messages.back().size()) + " bytes; allowed: up to " +
                    std::to_string(kMostAssignmentBytes));
  }
  for (int32_t r = 1; r < cluster.size(); ++r)
    sends.push_back(cluster.link({r}).isend(messages[static_cast<std::size_t>(r) - 1], kAssignmentTag));
  for (int32_t r = 1; r < cluster.size(); ++r)
    cluster.link({r}).wait(*sends[static_cast<std::size_t>(r) - 1], cluster.hub()->now() + kLoadTimeout);
}

std::vector<std::byte> receive_assignment(Cluster& cluster, Rank coordinator) {
  Link& source = cluster.link(coordinator);
  std::vector<std::byte> message(kMostAssignmentBytes);
  const std::unique_ptr<PendingOp> receive = source.irecv(message, kAssignmentTag, Fit::kUpTo);
  message.resize(source.wait(*receive, cluster.hub()->now() + kLoadTimeout));
  return message;
}

Error agree_on_failure(Cluster& cluster, const Error& own) {
  if (!cluster.is_coordinator() || cluster.has_met() || cluster.group() == nullptr) return own;
  try {
    cluster.agree(
        [&]() -> Cluster::Terms {
          send_assignments(cluster, nullptr);
          throw Error(own);
        },
        kLoadTimeout);
  } catch (const Error& common) {
    if (cluster.first_tells()) return common;
  }
  return own;  // somebody is gone
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

namespace {

/// What decides the bits of results: on the CPU its kernels, which every rank must have, or the device.
Cluster::Terms compute_terms(const ComputeResources& compute) {
  const std::string matmul = std::string("--matmul ") + compute.backend.matmul().name();
  if (!compute.device) return {{std::string("--kernels ") + compute.backend.kernels_name()}, {matmul}};
  const vulkan::DeviceInfo& info = compute.device->open->info();
  std::string name = info.name + ", " + info.driver;
  for (const std::string& fault : info.faults) name += ", without " + fault;
  return {{"--device vulkan (" + name + ")", /*may_differ=*/true}, {matmul, /*may_differ=*/true}};
}

}  // namespace

Cluster::Terms make_terms(const EngineOptions& options, const ModelConfig& config, const Quantization& quantization,
                          const ComputeResources& compute) {
  const MoePlan& moe = config.moe;
  Cluster::Terms terms{{std::string("--dtype ") + dtype_name(options.dtype.value_or(config.dtype))},
                       {"--token-budget " + std::to_string(options.token_budget)},
                       {std::string("--combine ") + (options.combine == CombineMode::kFast ? "fast" : "exact")},
                       {"--quantize " + quantization_name(quantization)},
                       {"a config.json with " + std::to_string(config.num_layers()) + " layers of width " +
                        std::to_string(config.hidden_dim) + " and " + std::to_string(moe.num_experts) + " experts of width " +
                        std::to_string(moe.intermediate_dim) + ", " + std::to_string(moe.top_k) + " per token"},
                       {config.mtp ? kHasMtpTerm : "no MTP layer to guess with"}};
  for (Term& term : compute_terms(compute)) terms.push_back(std::move(term));
  return terms;
}

uint64_t voice_of(const ComputeResources& compute) {
  std::string text;
  for (const Term& term : compute_terms(compute)) text += term.text + "\n";
  return content_hash(std::as_bytes(std::span(text)));
}

WeightPlan plan_run_weights(const EngineOptions& options, const ModelConfig& config, const Checkpoint& checkpoint) {
  WeightPlan plan = plan_weights(options.model, options.quantization);
  plan.quantization = resolve_quantization(checkpoint, config, plan.quantization);
  return plan;
}

LoadOptions make_load_options(const EngineOptions& options, DType dtype, const ModelConfig& config,
                              const Checkpoint& checkpoint, const ComputeResources& compute) {
  return {.dtype = dtype,
          .weights = plan_run_weights(options, config, checkpoint),
          .check_finite = options.check_weights,
          .require_memory = [&compute](int64_t bytes, const std::string& what) { compute.require_memory(bytes, what); },
          .progress = {}};
}

}  // namespace ferry
