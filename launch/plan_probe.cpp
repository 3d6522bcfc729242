#include "launch/plan_probe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/roof.h"
#include "launch/exchange_probe.h"
#include "launch/step_probe.h"
#include "runtime/base/available_memory.h"
#include "runtime/cluster/core_policy.h"
#include "runtime/load_progress.h"
#include "runtime/model/expert_loader.h"
#include "runtime/rank_setup.h"

namespace ferry {
namespace {

using ProbeClock = std::chrono::steady_clock;

constexpr std::array<int64_t, 3> kProbeWorkers{1, 2, 4};  // that share this host

/// Prints a line on stderr when each part of the measurement begins, since all of them take a minute.
class ProbeProgress {
 public:
  explicit ProbeProgress(int num_parts) : num_parts_(num_parts) {}

  void begin(const std::string& part) {
    std::fprintf(stderr, "ferry: plan: measuring, %d of %d: %s\n", ++part_, num_parts_, part.c_str());
  }

 private:
  const int num_parts_;
  int part_ = 0;
};

/// Experts of every layer that are measured: those of the first of as many ranks as it takes for its share to fit.
int64_t count_probe_experts(const ModelConfig& config, const PlanModel& model) {
  const double all = model.expert_bytes * static_cast<double>(model.num_experts * model.num_expert_layers);
  const double room = std::min(4e9, static_cast<double>(available_memory_bytes()) / 4);
  const auto shares = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(all / room)), 1, model.num_experts);
  return std::max((model.num_experts + shares - 1) / shares, config.moe.top_k);  // a token's are different ones
}

void load_weights(const ModelConfig& config, int64_t num_experts, const Backend& backend, ThreadPool& pool,
                  ProbeWeights& weights) {
  const std::unique_ptr<LoadProgress> progress = stderr_load_progress();
  LoadOptions load = weights.load;
  load.progress = [&](int64_t bytes) { progress->add(bytes); };
  load.expect = [&](int64_t bytes) { progress->expect(bytes); };
  std::vector<LogicalExpertId> some;
  some.reserve(static_cast<std::size_t>(num_experts));
  for (int32_t e = 0; e < num_experts; ++e) some.push_back({e});
  const RankExperts experts(static_cast<std::size_t>(config.num_expert_layers()), some);
  const ExpertLoader loader(weights.checkpoint, config, backend.matmul(), load);
  progress->expect(loader.stored_bytes(experts));
  weights.trunk = load_trunk(weights.checkpoint, config, backend, pool, load);
  weights.experts.emplace(loader.load_all(experts, pool));
  progress->finish();
}

/// How fast one thread reads experts and packs them.
double load_bytes_per_s(const ModelConfig& config, const PlanModel& model, const ProbeWeights& weights, Matmul& matmul) {
  constexpr double kSeconds = 0.3;
  const ExpertLoader loader(weights.checkpoint, config, matmul, weights.load);
  const auto start = ProbeClock::now();
  double num_bytes = 0, elapsed = 0;
  for (int64_t i = 0; elapsed < kSeconds && i < model.num_experts * loader.num_layers(); ++i) {
    const int64_t layer = i % loader.num_layers();
    if (!loader.has_experts(layer)) continue;
    loader.load(layer, {static_cast<int32_t>(i / loader.num_layers())});
    num_bytes += model.expert_bytes;
    elapsed = std::chrono::duration<double>(ProbeClock::now() - start).count();
  }
  return num_bytes / std::max(elapsed, 1e-9);
}

/// Costs are of the fastest passes, so the roofs beside them are the best of those before and after.
void raise_roofs(PlanHost& host, ThreadPool& pool, DType dtype, const std::string& matmul) {
  RoofProbe roof(pool);
  host.read_bytes_per_s = std::max(host.read_bytes_per_s, roof.read_bytes_per_s());
  host.flops_per_s = std::max(host.flops_per_s, roof.flops_per_s(dtype, matmul));
  host.code_flops_per_s = std::max(host.code_flops_per_s, roof.flops_per_s(DType::kI8, matmul));
}

/// What messages between processes take: of this host, and over TCP, from which a link of other hosts is guessed.
void measure_links(PlanHost& host) {
  for (const int64_t workers : kProbeWorkers)
    host.exchange.push_back({.workers = workers, .curve = measure_exchange(ProbeSockets::kHost, workers)});
  host.handling = measure_exchange(ProbeSockets::kTcp, 1);
  const Curve::Point few = host.handling.points.front(), many = host.handling.points.back();
  constexpr double kLeast = 1e-6;
  host.link_s = few.seconds;
  host.message_s = std::max(0.0, host.exchange[1].curve.points.front().seconds - host.exchange[0].curve.points.front().seconds);
  host.link_bytes_per_s = (many.size - few.size) / std::max(kLeast, many.seconds - few.seconds);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this";
}

}  // namespace

HostEntry measure_host(const EngineOptions& options, const ModelConfig& config, const PlanRun& run, const PlanModel& model) {
  const DType dtype = run.dtype;
  const int num_threads = options.threads > 0 ? options.threads : available_cores();
  const Backend backend = select_backend(options.kernels, options.matmul, dtype);
  HostEntry entry;
  entry.host = {
      .name = host_name(), .count = 1, .cores = num_threads, .ram_bytes = static_cast<double>(available_memory_bytes())};
  ProbeWeights weights{.checkpoint = Checkpoint::open(options.model), .load = {.dtype = dtype}, .trunk = {}, .experts = {}};
  weights.load.weights = plan_run_weights(options, config, weights.checkpoint);
  const CorePolicy alone{.cores = num_threads};
  constexpr int kOtherParts = 6;
  const int64_t num_experts = count_probe_experts(config, model);
  const auto num_layouts = std::ranges::count_if(kProbeWorkers, [&](int64_t workers) { return workers <= num_experts; });
  ProbeProgress progress(kOtherParts + static_cast<int>(num_layouts));
  {
    progress.begin("this machine's peaks");
    ThreadPool pool(num_threads, alone.thread_spin(num_threads));
    raise_roofs(entry.host, pool, dtype, backend.matmul().name());
    progress.begin("loading weights");
    load_weights(config, num_experts, backend, pool, weights);
  }
  progress.begin("messages between processes");
  measure_links(entry.host);
  progress.begin("how fast a thread reads experts");
  entry.host.load_bytes_per_s = load_bytes_per_s(config, model, weights, backend.matmul());
  StepProbeOptions steps{.engine = options, .config = config, .run = run, .num_threads = num_threads, .workers = 0};
  progress.begin("steps of one process");
  MeasuredCosts costs{
      .shape = model.shape, .num_layers = model.num_layers, .alone = measure_steps(steps, weights), .together = {}};
  for (const int64_t workers : kProbeWorkers) {
    if (workers > weights.experts->num_local_experts()) break;
    progress.begin("steps with " + std::to_string(workers) + (workers == 1 ? " worker" : " workers"));
    steps.workers = workers;
    costs.together.push_back({.workers = workers, .costs = measure_steps(steps, weights)});
  }
  progress.begin("this machine's peaks again");
  {
    ThreadPool pool(num_threads, alone.thread_spin(num_threads));
    raise_roofs(entry.host, pool, dtype, backend.matmul().name());
  }
  entry.measured.push_back(std::move(costs));
  return entry;
}

}  // namespace ferry
