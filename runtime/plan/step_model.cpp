#include "runtime/plan/step_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kFirstPosition = 32;  // of a decode, as of ferry bench
constexpr int64_t kDecodeSteps = 32;    // half of them to place by, half to judge

double real(int64_t value) { return static_cast<double>(value); }

/// Threads of a worker beside `workers` in all on its host, as CorePolicy has them.
double worker_threads(int64_t cores, int64_t workers) { return real(std::clamp<int64_t>(2 * cores / workers, 1, cores)); }

const char* largest_part(const StepTimes& t) {
  const double most = std::max({t.coordinator, t.experts, t.transport, t.imbalance});
  if (most == t.coordinator) return "coordinator";
  if (most == t.experts) return "experts";
  return most == t.transport ? "transport" : "imbalance";
}

void add(StepTimes& sum, const StepTimes& t, double weight) {
  sum.coordinator += weight * t.coordinator;
  sum.experts += weight * t.experts;
  sum.transport += weight * t.transport;
  sum.imbalance += weight * t.imbalance;
}

void require_case(const PlanCase& c, const PlanModel& model) {
  const auto require = [](bool ok, const char* what, int64_t value, const std::string& allowed) {
    if (!ok) throw_invalid("plan: " + std::to_string(value) + " " + what + "; allowed: " + allowed);
  };
  const int64_t most = std::min(kMaxWorkers, model.num_experts);
  require(c.workers >= 0 && c.workers <= most, "workers", c.workers, "0 to " + std::to_string(most));
  require(c.coordinators >= 1 && c.coordinators <= c.batch, "coordinators", c.coordinators,
          "1 to the batch, " + std::to_string(c.batch));
  require(c.workers > 0 || c.coordinators == 1, "coordinators", c.coordinators, "1 where there are no workers");
  require(c.prompt >= 1 && c.prefill_chunk >= 1 && c.context >= 1, "tokens of a prompt", c.prompt, "1 or more");
}

}  // namespace

PlanSites make_sites(std::span<const PlanHost> hosts, int64_t coordinators, int64_t workers) {
  PlanSites sites;
  for (const PlanHost& host : hosts) {
    for (int64_t i = 0; i < host.count && std::ssize(sites.hosts) < coordinators + workers; ++i) sites.hosts.push_back(&host);
  }
  const int64_t num_hosts = std::ssize(sites.hosts);
  sites.is_together = num_hosts == 1;
  const int64_t first = std::min(coordinators, num_hosts - 1);
  for (int64_t w = 0; w < workers; ++w) sites.worker_host.push_back(first + w % (num_hosts - first));
  return sites;
}

ExpertCost chooser_cost(const Curve& expert) {
  constexpr double kMany = 16;
  const double one = expert.at(1), per_row = std::max(0.0, (expert.at(kMany) - one) / (kMany - 1));
  return {.fixed = std::max(0.0, one - per_row), .per_row = per_row};
}

StepModel::StepModel(const PlanModel& model, std::span<const PlanHost> hosts, const RoutingRows& routing)
    : model_(model), hosts_(hosts), routing_(routing) {}

const AskedRows& StepModel::decode_rows(int64_t batch) {
  const auto found = decode_.find(batch);
  if (found != decode_.end()) return found->second;
  return decode_.emplace(batch, asked_by_decode(routing_, batch, kFirstPosition, kDecodeSteps)).first->second;
}

const AskedRows& StepModel::prefill_rows(int64_t position, int64_t count) {
  const auto found = prefill_.find({position, count});
  if (found != prefill_.end()) return found->second;
  return prefill_.emplace(std::pair(position, count), asked_by_prefill(routing_, position, count)).first->second;
}

/// Everything on the first host, which nobody shares.
StepTimes StepModel::one_process(const AskedRows& asked, int64_t step, const Rows& r) const {
  const RankCosts& costs = hosts_.front().alone;
  const bool is_decode = r.phase == RoutingPhase::kDecode;
  StepTimes t;
  t.coordinator = (is_decode ? costs.own_decode : costs.own_prefill).at(r.rows) +
                  (is_decode ? costs.shared_decode : costs.shared_prefill).at(r.rows) + costs.head.at(r.logits) +
                  r.rows * r.keys * (is_decode ? costs.key_decode : costs.key_prefill);
  for (int64_t l = 0; l < asked.num_layers; ++l) {
    t.experts += costs.expert_call;
    for (const int32_t rows : asked.of(step, l)) t.experts += rows > 0 ? costs.expert.at(rows) : 0;
  }
  return t;
}

StepModel::Exchange StepModel::exchange(const PlanSites& sites, const Layer& layer, std::span<const int32_t> asked,
                                        double num_rows, ExpertChooser& chooser) const {
  const std::size_t num_workers = sites.worker_host.size();
  const ExpertChoice& choice = chooser.choose(asked, layer.holders, ~uint64_t{0});
  std::vector<double> busy(num_workers, 0), rows_of(num_workers, 0), host_sum(sites.hosts.size(), 0),
      host_most(sites.hosts.size(), 0);
  std::vector<int64_t> on_host(sites.hosts.size(), 0);
  for (const int64_t host : sites.worker_host) ++on_host[static_cast<std::size_t>(host)];
  const auto costs_of = [&](std::size_t w) -> const RankCosts& {
    const auto h = static_cast<std::size_t>(sites.worker_host[w]);
    return sites.is_together || on_host[h] > 1 ? sites.hosts[h]->beside : sites.hosts[h]->alone;
  };
  for (std::size_t e = 0; e < asked.size(); ++e) {
    if (choice.worker[e] < 0) continue;
    const auto w = static_cast<std::size_t>(choice.worker[e]);
    busy[w] += costs_of(w).expert.at(asked[e]);
    rows_of[w] += asked[e];
  }
  double row_pairs = 0;  // tokens times workers that they go to
  for (std::size_t w = 0; w < num_workers; ++w) {
    const auto h = static_cast<std::size_t>(sites.worker_host[w]);
    busy[w] += costs_of(w).expert_call;
    host_sum[h] += busy[w];
    const double fewer = real(sites.hosts[h]->cores) / worker_threads(sites.hosts[h]->cores, on_host[h]);
    host_most[h] = std::max(host_most[h], busy[w] * fewer);
    const double share = rows_of[w] / (num_rows * real(model_.top_k));
    row_pairs += num_rows * (1 - std::pow(1 - std::min(1.0, share), real(model_.top_k)));
  }
  double longest = 0, sum = 0;
  int64_t num_used = 0;
  for (std::size_t h = 0; h < sites.hosts.size(); ++h) {
    if (on_host[h] == 0) continue;
    longest = std::max({longest, host_sum[h], host_most[h]});
    sum += host_sum[h];
    ++num_used;
  }
  const PlanHost& home = *sites.hosts.front();
  const double bytes = row_pairs * model_.row_out_bytes + num_rows * real(model_.top_k) * model_.row_in_bytes;
  const double even = sum / real(num_used);
  return {.experts = even,
          .transport = home.link_s + real(std::ssize(sites.worker_host) - 1) * home.message_s + bytes / home.link_bytes_per_s,
          .imbalance = longest - even};
}

StepTimes StepModel::with_workers(const PlanCase& c, const PlanSites& sites, std::span<const Layer> layers,
                                  const AskedRows& asked, int64_t step, const Rows& r) const {
  const RankCosts& costs = sites.is_together ? sites.hosts.front()->beside : sites.hosts.front()->alone;
  const bool is_decode = r.phase == RoutingPhase::kDecode;
  const double at_once = sites.is_together ? real(c.coordinators) : 1;  // coordinators of one host work one after the other
  const double own = at_once * ((is_decode ? costs.own_decode : costs.own_prefill).at(r.rows) +
                                r.rows * r.keys * (is_decode ? costs.key_decode : costs.key_prefill));
  const double shared = at_once * (is_decode ? costs.shared_decode : costs.shared_prefill).at(r.rows);
  const double head = at_once * costs.head.at(r.logits);
  const std::vector<double> speeds(sites.worker_host.size(), 1.0);
  ExpertChooser chooser(model_.num_experts, speeds, chooser_cost(sites.hosts.back()->alone.expert));
  const double shared_of_layer = shared / real(std::max<int64_t>(1, asked.num_layers));
  StepTimes t{.coordinator = own + head};
  for (int64_t l = 0; l < asked.num_layers; ++l) {
    const Exchange x =
        exchange(sites, layers[static_cast<std::size_t>(l)], asked.of(step, l), real(asked.rows_per_step), chooser);
    const double away = x.experts + x.transport + x.imbalance;
    // What of the workers' time the coordinator works through does not count twice.
    const double hidden = sites.is_together ? 0 : std::min(shared_of_layer, away);
    const double left = away > 0 ? (away - hidden) / away : 0;
    t.coordinator += shared_of_layer;
    t.experts += left * x.experts;
    t.transport += left * x.transport;
    t.imbalance += left * x.imbalance;
  }
  const bool has_halves = !sites.is_together && !is_decode && asked.rows_per_step >= 2 * kPlanMicroBatchRows;
  const double away = t.experts + t.transport + t.imbalance, busy = t.coordinator - head;
  if (!has_halves || away <= 0) return t;
  // Two halves in turn: all of the longer part, and of the shorter one what has nothing to hide behind, half of one layer.
  const double hidden = std::min(away, busy) * (1 - 0.5 / real(asked.num_layers));
  const double left = (away - hidden) / away;
  return {.coordinator = t.coordinator,
          .experts = left * t.experts,
          .transport = left * t.transport,
          .imbalance = left * t.imbalance};
}

StepTimes StepModel::decode_times(const PlanCase& c, std::span<const Layer> layers) {
  const AskedRows& asked = decode_rows(c.batch);
  const double rows = std::ceil(real(c.batch) / real(c.coordinators));
  const Rows r{.rows = rows, .keys = real(c.context), .logits = rows, .phase = RoutingPhase::kDecode};
  const PlanSites sites = make_sites(hosts_, c.coordinators, c.workers);
  StepTimes mean;
  const double weight = 1 / real(asked.num_steps / 2);
  for (int64_t t = 1; t < asked.num_steps; t += 2)  // the others are what the experts were placed by
    add(mean, c.workers == 0 ? one_process(asked, t, r) : with_workers(c, sites, layers, asked, t, r), weight);
  return mean;
}

StepTimes StepModel::prefill_times(const PlanCase& c, std::span<const Layer> layers) {
  const PlanSites sites = make_sites(hosts_, c.coordinators, c.workers);
  PlanCase alone = c;
  alone.coordinators = 1;  // a prompt is one coordinator's
  StepTimes sum;
  for (int64_t first = 0; first < c.prompt; first += c.prefill_chunk) {
    const int64_t count = std::min(c.prefill_chunk, c.prompt - first);
    const AskedRows& asked = prefill_rows(first, count);
    const Rows r{.rows = real(count),
                 .keys = real(first),
                 .logits = first + count == c.prompt ? 1.0 : 0.0,
                 .phase = RoutingPhase::kPrefill};
    add(sum, c.workers == 0 ? one_process(asked, 0, r) : with_workers(alone, sites, layers, asked, 0, r), 1);
  }
  return sum;
}

std::vector<StepModel::Layer> StepModel::placed(const PlanCase& c, PlanResult* result) {
  if (c.workers == 0) return {};
  const ExpertCost cost = chooser_cost(hosts_.back().alone.expert);
  const std::vector<LayerPlacement> placement =
      place(loads_of(decode_rows(c.batch), 0, 2), cost, c.workers, c.copies, c.is_spread);
  std::vector<Layer> layers;
  std::vector<double> held(static_cast<std::size_t>(c.workers), 0);
  double lost = 0;
  for (const LayerPlacement& layer : placement)
    for (std::size_t w = 0; w < layer.size(); ++w) held[w] += real(std::ssize(layer[w]));
  const auto fullest = static_cast<std::size_t>(std::ranges::max_element(held) - held.begin());
  for (const LayerPlacement& layer : placement) {
    layers.push_back({holders_of(layer, model_.num_experts)});
    for (const uint64_t holders : layers.back().holders) lost += holders == uint64_t{1} << fullest ? 1 : 0;
  }
  if (result != nullptr) {
    result->worker_bytes = held[fullest] * model_.expert_bytes;
    result->lost_share = lost / real(model_.num_expert_layers * model_.num_experts);
  }
  return layers;
}

void StepModel::fill_memory(const PlanCase& c, PlanResult& result) const {
  const double all_experts = real(model_.num_expert_layers * model_.num_experts) * model_.expert_bytes;
  result.coordinator_bytes = model_.coordinator_bytes + (c.workers == 0 ? all_experts : 0);
  const double of_sequence = model_.bytes_per_sequence + real(c.context) * model_.bytes_per_token;
  result.cache_bytes = std::ceil(real(c.batch) / real(c.coordinators)) * of_sequence;
  const PlanSites sites = make_sites(hosts_, c.coordinators, c.workers);
  std::vector<double> used(sites.hosts.size(), 0);
  for (const int64_t host : sites.worker_host) used[static_cast<std::size_t>(host)] += result.worker_bytes;
  for (int64_t i = 0; i < c.coordinators; ++i)
    used[static_cast<std::size_t>(std::min(i, std::ssize(sites.hosts) - 1))] += result.coordinator_bytes;
  const double ram = sites.hosts.front()->ram_bytes, left = ram - used.front();
  const double sharing = sites.is_together ? real(c.coordinators) : 1;
  result.most_sequences =
      ram > 0 && of_sequence > 0 ? std::max<int64_t>(0, static_cast<int64_t>(left / sharing / of_sequence)) : 0;
  for (int64_t i = 0; i < c.coordinators; ++i)
    used[static_cast<std::size_t>(std::min(i, std::ssize(sites.hosts) - 1))] += result.cache_bytes;
  for (std::size_t h = 0; h < used.size(); ++h)
    if (sites.hosts[h]->ram_bytes > 0 && used[h] > sites.hosts[h]->ram_bytes) result.fits = false;
}

/// One worker less, whose experts without a copy the others read anew and share out.
void StepModel::fill_death(const PlanCase& c, PlanResult& result) {
  if (c.workers < 2) return;
  PlanCase after = c;
  after.workers = c.workers - 1;
  after.copies = {};
  after.is_spread = true;
  result.after_death_tokens_per_s = real(c.batch) / decode_times(after, placed(after, nullptr)).sum();
  const double bytes = result.lost_share * real(model_.num_expert_layers * model_.num_experts) * model_.expert_bytes;
  const PlanSites sites = make_sites(hosts_, c.coordinators, c.workers);
  const double readers = sites.is_together ? 1 : real(std::min<int64_t>(after.workers, std::ssize(sites.hosts)));
  result.reload_s = bytes / (readers * hosts_.back().read_bytes_per_s);
}

PlanResult StepModel::plan(const PlanCase& asked) {
  require_case(asked, model_);
  PlanResult result{.asked = asked};
  const std::vector<Layer> layers = placed(asked, &result);
  result.decode = decode_times(asked, layers);
  result.prefill = prefill_times(asked, layers);
  result.decode_tokens_per_s = real(asked.batch) / result.decode.sum();
  result.prefill_tokens_per_s = real(asked.prompt) / result.prefill.sum();
  result.bound = largest_part(result.decode);
  fill_memory(asked, result);
  fill_death(asked, result);
  return result;
}

std::vector<std::size_t> best_of(std::span<const PlanResult> results) {
  std::map<int64_t, std::size_t> best;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].fits) continue;
    const auto [at, is_first] = best.emplace(results[i].asked.batch, i);
    if (!is_first && results[i].decode_tokens_per_s > results[at->second].decode_tokens_per_s) at->second = i;
  }
  std::vector<std::size_t> indices;
  for (const auto& [batch, index] : best) indices.push_back(index);
  return indices;
}

}  // namespace ferry
