#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "launch/commands.h"
#include "launch/plan_model.h"
#include "launch/plan_probe.h"
#include "moe/routing/drawn_routing.h"
#include "moe/routing/routing_rows.h"
#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/text_file.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/operators.h"
#include "runtime/model/weights_loader.h"
#include "runtime/plan/advice.h"
#include "runtime/plan/hosts_file.h"
#include "runtime/plan/plan_picture.h"
#include "runtime/plan/step_model.h"
#include "runtime/run_description.h"

// `ferry plan`: what numbers of workers and copies would bring.

namespace ferry {
namespace {

/// Slices of a dense model are experts that every token passes.
RoutingShape plan_routing_shape(const ModelConfig& config) {
  RoutingShape shape = routing_shape(config);
  if (!shape.layers.empty()) return shape;
  shape.layers.resize(static_cast<std::size_t>(config.num_layers()));
  std::iota(shape.layers.begin(), shape.layers.end(), int64_t{0});
  return shape;
}

RoutingTrace plan_routing(const PlanOptions& options, const RoutingShape& shape) {
  if (options.trace.empty()) return draw_routing(shape, {.slope = options.skew.value_or(PlanOptions::kSkew)});
  RoutingTrace trace = read_routing_trace(options.trace);
  const std::string source = "--trace " + options.trace.string();
  require_shape(trace, shape, source);
  require_steps(trace, source);
  return trace;
}

std::vector<HostEntry> plan_hosts(const Options& options, const ModelConfig& config, const PlanRun& run,
                                  const PlanModel& model) {
  const PlanOptions& o = options.plan;
  std::vector<HostEntry> hosts;
  if (!o.measure) {
    hosts = read_hosts(read_text_file(o.hosts), o.hosts.string());
  } else {
    hosts.push_back(measure_host(options.engine, config, run, model));
    if (!o.save.empty()) {
      const std::string text = write_hosts(hosts);
      write_file(o.save, [&](std::ostream& out) { out << text; });
    }
  }
  if (o.link_gbit_per_s == 0) return hosts;
  constexpr double kBytesPerGbit = 1e9 / 8;
  hosts.resize(1);
  PlanHost& host = hosts.front().host;
  host.count = 2 * kMaxWorkers;
  host.link_s = o.link_us * 1e-6;
  host.link_bytes_per_s = o.link_gbit_per_s * kBytesPerGbit;
  return hosts;
}

/// How weights would be held; only what `native` stands for is looked up in the checkpoint, of which else config.json does.
Quantization plan_quantization(const EngineOptions& options, const ModelConfig& config) {
  const Quantization asked = plan_weights(options.model, options.quantization).quantization;
  return asked.is_native ? resolve_quantization(Checkpoint::open(options.model), config, asked) : asked;
}

/// All that is asked for of `batch` sequences behind `depth` tokens.
void add_cases(const PlanOptions& o, const ModelConfig& config, const PlanCase& asked, std::vector<PlanCase>& cases) {
  for (const int64_t coordinators : o.coordinators) {
    for (const PlanCopies& copies : o.copies) {
      for (const int64_t workers : o.workers) {
        const bool is_alone = workers == 0;
        if (workers > config.moe.num_experts || coordinators > asked.batch) continue;
        // One process has no copies and no other coordinator: it is counted once.
        if (is_alone && (coordinators > 1 || copies.name != o.copies.front().name)) continue;
        cases.push_back(asked);
        cases.back().workers = workers;
        cases.back().coordinators = coordinators;
        cases.back().copies = is_alone ? PlanCopies{} : copies;
      }
    }
  }
}

/// Throws Error{kInvalidArgument} for a depth that sequences cannot have, and if no case is left.
std::vector<PlanCase> plan_cases(const PlanOptions& o, const ModelConfig& config, const EngineOptions& engine) {
  std::vector<PlanCase> cases;
  for (const int64_t depth : o.depths) {
    const int64_t longest = depth + std::max(o.context, o.prompt);
    if (longest > config.max_context)
      throw_invalid("plan: sequences of " + std::to_string(longest) + " tokens (-d, --context, --prompt); allowed: up to " +
                    std::to_string(config.max_context) + ", the checkpoint's");
    for (const int64_t batch : o.batches) {
      const PlanCase asked{.is_spread = o.is_spread,
                           .batch = batch,
                           .depth = depth,
                           .context = o.context,
                           .prompt = o.prompt,
                           .prefill_chunk = engine.prefill_chunk};
      add_cases(o, config, asked, cases);
    }
  }
  if (cases.empty())
    throw_invalid("plan: no configuration is left; allowed: workers up to the experts, coordinators up to the batch");
  return cases;
}

/// What a layer's messages take between ranks of the host, where that was measured.
void print_exchange(const PlanHost& host) {
  constexpr double kSmall = 1 << 12, kMiddle = 1 << 16, kLarge = 1 << 20;
  for (const HostExchange& x : host.exchange) {
    std::printf("  within it %lld worker%s: 4 KiB of a layer %.0f us, 64 KiB %.0f us, 1 MiB %.0f us\n",
                static_cast<long long>(x.workers), x.workers > 1 ? "s" : "", x.curve.at(kSmall) * 1e6,
                x.curve.at(kMiddle) * 1e6, x.curve.at(kLarge) * 1e6);
  }
}

void print_plan_head(const Options& options, const ModelConfig& config, const PlanModel& model,
                     const std::vector<PlanHost>& hosts) {
  std::printf("%s: coordinator %.2f GB of weights, %lld layers of %lld experts of %.2f MB\n", config.name.c_str(),
              model.coordinator_bytes * 1e-9, static_cast<long long>(model.num_expert_layers),
              static_cast<long long>(model.num_experts), model.expert_bytes * 1e-6);
  for (const PlanHost& h : hosts) {
    std::printf(
        "%lld x %s: %lld cores, reads %.1f GB/s, %.0f GFLOP/s, %.0f GOP/s of codes; a round trip %.0f us, %.2f GB/s; costs "
        "%s\n",
        static_cast<long long>(h.count), h.name.c_str(), static_cast<long long>(h.cores), h.read_bytes_per_s * 1e-9,
        h.flops_per_s * 1e-9, h.code_flops_per_s * 1e-9, h.link_s * 1e6, h.link_bytes_per_s * 1e-9,
        h.is_measured ? "measured" : "guessed from these roofs");
    print_exchange(h);
  }
  const ExpertCost cost = chooser_cost(hosts.back().alone.expert);
  std::printf("an expert takes %.1f us and %.2f us a row; routing %s\n\n", cost.fixed * 1e6, cost.per_row * 1e6,
              options.plan.trace.empty()
                  ? ("drawn, Zipf " + std::to_string(options.plan.skew.value_or(PlanOptions::kSkew)).substr(0, 4)).c_str()
                  : ("of " + options.plan.trace.string()).c_str());
}

}  // namespace

int run_plan(const Options& options) {
  const ModelConfig config = load_config(options.engine.model);
  if (config.moe.num_experts == 0) throw_invalid("plan: " + config.name + " has nothing that workers could hold");
  const DType dtype = options.engine.dtype.value_or(config.dtype);
  const PlanRun run{.quantization = plan_quantization(options.engine, config),
                    .dtype = dtype,
                    .kv_dtype = kv_cache_dtype(options.engine.kv_cache_dtype, dtype),
                    .screens_lm_head = options.engine.lm_head_screen};
  const PlanModel model = plan_model(config, run);
  const RoutingTrace trace = plan_routing(options.plan, plan_routing_shape(config));
  const std::vector<PlanCase> cases = plan_cases(options.plan, config, options.engine);
  std::vector<PlanHost> hosts;
  for (const HostEntry& entry : plan_hosts(options, config, run, model)) {
    hosts.push_back(host_for(entry, model));
    if (!hosts.back().is_measured) cost_by_roofs(hosts.back(), config, run, model);
  }
  const RoutingRows routing(trace);
  StepModel steps(model, hosts, routing);
  std::vector<PlanResult> results;
  results.reserve(cases.size());
  for (const PlanCase& asked : cases) results.push_back(steps.plan(asked));
  const std::vector<PlanAdvice> advice = advise(steps, results);
  if (!options.plan.svg.empty()) {
    const std::string svg = plan_svg(results);
    write_file(options.plan.svg, [&](std::ostream& out) { out << svg; });
  }
  if (options.plan.json) {
    std::fputs(plan_json(model, hosts, results, advice).c_str(), stdout);
    return 0;
  }
  print_plan_head(options, config, model, hosts);
  std::fputs(plan_table(results, advice).c_str(), stdout);
  return 0;
}

}  // namespace ferry
