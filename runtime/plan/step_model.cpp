#include "runtime/plan/step_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/plan/shared_workers.h"
#include "runtime/plan/step_layout.h"

namespace ferry {
namespace {

constexpr int64_t kFirstPosition = 32;  // of a decode, as of ferry bench
constexpr int64_t kDecodeSteps = 32;    // half of them to place by, half to judge

/// Threads of a worker beside `workers` in all on its host, as CorePolicy has them.
double worker_threads(int64_t cores, int64_t workers) { return real(std::clamp<int64_t>(2 * cores / workers, 1, cores)); }

const char* largest_part(const StepTimes& t) {
  const double most = std::max({t.coordinator, t.experts, t.transport, t.imbalance, t.queue});
  if (most == t.coordinator) return "coordinator";
  if (most == t.experts) return "experts";
  if (most == t.transport) return "transport";
  return most == t.imbalance ? "imbalance" : "queue";
}

void add(StepTimes& sum, const StepTimes& t, double weight) {
  sum.coordinator += weight * t.coordinator;
  sum.experts += weight * t.experts;
  sum.transport += weight * t.transport;
  sum.imbalance += weight * t.imbalance;
  sum.queue += weight * t.queue;
}

/// Of a layer's messages, beside rows: headers, counts of experts, which row is of which token (moe/wire.h).
double framing_bytes(double workers, double experts, double rows) {
  constexpr double kHeaders = 2 * 64 + 64;  // both ways, and what aligns the rows
  return workers * kHeaders + 4 * experts + 4 * rows;
}

/// Sequences of one coordinator.
int64_t own_batch(const PlanCase& c) { return (c.batch + c.coordinators - 1) / c.coordinators; }

void require_case(const PlanCase& c, const PlanModel& model) {
  const auto require = [](bool ok, const char* what, int64_t value, const std::string& allowed) {
    if (!ok) throw_invalid("plan: " + std::to_string(value) + " " + what + "; allowed: " + allowed);
  };
  const int64_t most = std::min(kMaxWorkers, model.num_experts);
  require(c.workers >= 0 && c.workers <= most, "workers", c.workers, "0 to " + std::to_string(most));
  require(c.coordinators >= 1 && c.coordinators <= c.batch, "coordinators", c.coordinators,
          "1 to the batch, " + std::to_string(c.batch));
  require(c.workers > 0 || c.coordinators == 1, "coordinators", c.coordinators, "1 where there are no workers");
  if (c.given != nullptr) {
    require(std::ssize(*c.given) == model.num_expert_layers, "layers that experts are given to", std::ssize(*c.given),
            std::to_string(model.num_expert_layers));
    for (const LayerPlacement& layer : *c.given)
      require(std::ssize(layer) == c.workers, "workers that hold experts", std::ssize(layer), std::to_string(c.workers));
  }
  require(c.prompt >= 1 && c.prefill_chunk >= 1 && c.context >= 1 && c.depth >= 0, "tokens of a prompt", c.prompt, "1 or more");
}

}  // namespace

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
                  (is_decode ? costs.shared_decode : costs.shared_prefill).at(r.rows) + costs.of_head(r.logits) +
                  costs.of_keys(is_decode, r.rows, r.keys);
  for (int64_t l = 0; l < asked.num_layers; ++l) {
    t.experts += costs.expert_call;
    for (const int32_t rows : asked.of(step, l)) t.experts += rows > 0 ? costs.expert.at(rows) : 0;
  }
  return t;
}

/// Of each worker, relative to the others: what a row of its own takes, as a running job learns it.
std::vector<double> worker_speeds(const PlanSites& sites) {
  std::vector<double> of_one, sorted;
  for (std::size_t w = 0; w < sites.worker_host.size(); ++w) of_one.push_back(sites.host_of(w).alone.expert.at(1));
  sorted = of_one;
  std::ranges::sort(sorted);
  std::vector<double> speeds(of_one.size(), 1.0);
  const double middle = sorted.empty() ? 0 : sorted[sorted.size() / 2];
  constexpr double kMost = 4, kLeast = 1.0 / 16;  // as relative_speeds() has them
  for (std::size_t w = 0; w < speeds.size() && middle > 0; ++w)
    if (of_one[w] > 0) speeds[w] = std::clamp(std::round(10 * middle / of_one[w]) / 10, kLeast, kMost);
  return speeds;
}

StepModel::Layout::Layout(const PlanModel& model, std::span<const PlanHost> hosts, const PlanCase& c,
                          const Holders& expert_holders)
    : sites(make_sites(hosts, c.coordinators, c.workers)),
      holders(expert_holders),
      coordinator(sites.home(), sites.is_together ? c.workers : 0),
      chooser(model.num_experts, worker_speeds(sites), chooser_cost(sites.host_of(0).alone.expert)),
      micro_batch_rows(c.micro_batch_rows),
      adds_on_workers(c.adds_on_workers),
      busy(static_cast<std::size_t>(c.workers)),
      worker_rows(busy.size()),
      host_sum(sites.hosts.size()),
      host_most(sites.hosts.size()) {
  for (std::size_t w = 0; w < busy.size(); ++w) {
    const PlanHost& host = sites.host_of(w);
    const int64_t workers_there = sites.workers_on[static_cast<std::size_t>(sites.worker_host[w])];
    workers.emplace_back(host, sites.is_together || workers_there > 1 ? workers_there : 0);
    const double threads =
        host.worker_threads > 0 ? real(std::min(host.worker_threads, host.cores)) : worker_threads(host.cores, workers_there);
    fewer.push_back(real(host.cores) / threads);
  }
}

StepModel::Exchange StepModel::exchange(Layout& layout, std::span<const uint64_t> holders, std::span<const int32_t> asked,
                                        const Rows& r) const {
  const PlanSites& sites = layout.sites;
  const ExpertChoice& choice = layout.chooser.choose(asked, holders, layout.live);
  for (std::vector<double>* zeroed : {&layout.busy, &layout.worker_rows, &layout.host_sum, &layout.host_most})
    std::ranges::fill(*zeroed, 0.0);
  layout.is_seen.assign(sites.hosts.size(), false);
  layout.orphans.clear();
  Exchange x;
  const RankCosts& own_host = sites.home().alone;
  for (std::size_t e = 0; e < asked.size(); ++e) {
    if (choice.worker[e] == ExpertChoice::kUntouched) continue;
    if (choice.worker[e] == ExpertChoice::kNoHolder) {
      x.here += own_host.expert.at(asked[e]) + (layout.orphans.empty() ? own_host.expert_call : 0);
      layout.orphans.push_back(static_cast<int32_t>(e));
      continue;
    }
    const auto w = static_cast<std::size_t>(choice.worker[e]);
    layout.busy[w] += layout.workers[w].of([&](const RankCosts& costs) { return costs.expert.at(asked[e]); });
    layout.worker_rows[w] += asked[e];
  }
  double row_pairs = 0, back = 0;  // tokens times workers that they go to; rows that come back
  for (std::size_t w = 0; w < layout.busy.size(); ++w) {
    const auto h = static_cast<std::size_t>(sites.worker_host[w]);
    layout.host_sum[h] += layout.busy[w];
    layout.host_most[h] = std::max(layout.host_most[h], layout.busy[w] * layout.fewer[w]);
    const double share = layout.worker_rows[w] / (r.rows * real(model_.top_k));
    const double pairs = r.rows * (1 - std::pow(1 - std::min(1.0, share), real(model_.top_k)));
    row_pairs += pairs;
    back += layout.adds_on_workers ? pairs : layout.worker_rows[w];
  }
  double longest = 0, sum = 0;
  int64_t num_used = 0;
  for (std::size_t w = 0; w < layout.busy.size(); ++w) {
    const auto h = static_cast<std::size_t>(sites.worker_host[w]);
    if (!layout.is_live(w) || layout.is_seen[h]) continue;
    layout.is_seen[h] = true;
    const double call = layout.workers[w].of([](const RankCosts& costs) { return costs.expert_call; });
    longest = std::max({longest, call + layout.host_sum[h], call + layout.host_most[h]});
    sum += call + layout.host_sum[h];
    ++num_used;
  }
  if (num_used == 0) return x;
  x.experts = sum / real(num_used);
  x.imbalance = longest - x.experts;
  const double num_bytes = row_pairs * model_.row_out_bytes + back * model_.row_in_bytes +
                           framing_bytes(real(layout.num_live()), real(model_.num_experts), back);
  x.transport = transport_s(layout, num_bytes, r.phase);
  return x;
}
/// What the messages of a layer take.
double StepModel::transport_s(const Layout& layout, double num_bytes, RoutingPhase phase) {
  const PlanSites& sites = layout.sites;
  const int64_t workers = layout.num_live();
  if (!sites.is_together) return link_exchange_s(sites.home(), workers, num_bytes);
  if (sites.home().together.empty()) return host_exchange_s(sites.home(), workers, num_bytes);
  return layout.coordinator.of([&](const RankCosts& costs) {
    return (phase == RoutingPhase::kDecode ? costs.exchange_decode : costs.exchange_prefill).at(num_bytes);
  });
}

StepModel::Step StepModel::with_workers(Layout& layout, const AskedRows& asked, int64_t step, const Rows& r) const {
  const PlanSites& sites = layout.sites;
  const bool is_decode = r.phase == RoutingPhase::kDecode;
  const auto cost = [&](auto&& get) { return layout.coordinator.of(get); };
  const double own = cost([&](const RankCosts& c) {
    return (is_decode ? c.own_decode : c.own_prefill).at(r.rows) + c.of_keys(is_decode, r.rows, r.keys);
  });
  const double shared = cost([&](const RankCosts& c) { return (is_decode ? c.shared_decode : c.shared_prefill).at(r.rows); });
  const double head = cost([&](const RankCosts& c) { return c.of_head(r.logits); });
  const double shared_of_layer = shared / real(std::max<int64_t>(1, asked.num_layers));
  Step s;
  StepTimes& t = s.times;
  t.coordinator = own + head;
  for (int64_t l = 0; l < asked.num_layers; ++l) {
    const Exchange x = exchange(layout, layout.holders[static_cast<std::size_t>(l)], asked.of(step, l), r);
    for (const int32_t e : layout.orphans) s.orphans.push_back(l * asked.num_experts + e);
    s.service_s += x.experts + x.imbalance;
    const double away = x.experts + x.transport + x.imbalance;
    // What of the workers' time the coordinator works through does not count twice.
    const double busy = shared_of_layer + x.here;
    const double hidden = sites.is_together ? 0 : std::min(busy, away);
    const double left = away > 0 ? (away - hidden) / away : 0;
    t.coordinator += busy;
    t.experts += left * x.experts;
    t.transport += left * x.transport;
    t.imbalance += left * x.imbalance;
  }
  const bool has_halves =
      !sites.is_together && !is_decode && layout.micro_batch_rows > 0 && asked.rows_per_step >= 2 * layout.micro_batch_rows;
  const double away = t.experts + t.transport + t.imbalance, busy = t.coordinator - head;
  if (!has_halves || away <= 0) return s;
  // Two halves in turn: all of the longer part, and of the shorter one what has nothing to hide behind, half of one layer.
  const double hidden = std::min(away, busy) * (1 - 0.5 / real(asked.num_layers));
  const double left = (away - hidden) / away;
  t.experts *= left;
  t.transport *= left;
  t.imbalance *= left;
  return s;
}

StepModel::Rows StepModel::rows_of_decode(const PlanCase& c, int64_t batch) {
  return {.rows = real(batch), .keys = real(c.depth + c.context), .logits = real(batch), .phase = RoutingPhase::kDecode};
}

StepModel::Step StepModel::mean_step(const PlanCase& c, Layout& layout, int64_t batch) {
  const AskedRows& asked = decode_rows(batch);
  const Rows rows = rows_of_decode(c, batch);
  Step mean;
  const double weight = 1 / real(asked.num_steps / 2);
  for (int64_t t = 1; t < asked.num_steps; t += 2) {  // the others are what the experts were placed by
    const Step step = with_workers(layout, asked, t, rows);
    add(mean.times, step.times, weight);
    mean.service_s += weight * step.service_s;
  }
  return mean;
}

/// `result` may be null; else it gets what else follows.
StepTimes StepModel::decode_times(const PlanCase& c, const Holders& holders, PlanResult* result) {
  if (c.workers == 0) {
    const AskedRows& asked = decode_rows(c.batch);
    StepTimes mean;
    for (int64_t t = 1; t < asked.num_steps; t += 2)
      add(mean, one_process(asked, t, rows_of_decode(c, c.batch)), 1 / real(asked.num_steps / 2));
    return mean;
  }
  Layout layout(model_, hosts_, c, holders);
  const Step one = mean_step(c, layout, own_batch(c));
  StepTimes t = one.times;
  if (c.coordinators > 1) t = share_workers(c, layout, one, result);
  if (result == nullptr) return t;
  result->worker_use = std::min(1.0, real(c.coordinators) * one.service_s / t.sum());
  result->coordinator_hosts = layout.sites.num_coordinator_hosts();
  result->worker_hosts = layout.sites.num_worker_hosts();
  return t;
}

/// A step of one of several coordinators, of which `one` is what it were alone.
StepTimes StepModel::share_workers(const PlanCase& c, Layout& layout, const Step& one, PlanResult* result) {
  StepTimes t = one.times;
  // Coordinators of one host take its cores in turn, and where workers are there, too, the sockets as well.
  const double at_once = real(layout.sites.most_coordinators());
  t.coordinator *= at_once;
  if (layout.sites.is_together) t.transport *= at_once;
  const double layers = real(model_.num_expert_layers);
  const double service_two = mean_step(c, layout, std::min(c.batch, 2 * own_batch(c))).service_s;
  const SharedWork work{.coordinators = c.coordinators,
                        .is_together = layout.sites.is_together,
                        .own_s = std::max(0.0, t.sum() - one.service_s) / layers,
                        .service_s = one.service_s / layers,
                        .service_two_s = std::min(service_two, 2 * one.service_s) / layers,
                        .same_layer = same_layer_chance(model_.num_expert_layers)};
  const SharedTurn turn = estimate_turn(work);
  t.queue = layers * std::max(0.0, turn.wait_s);
  if (result == nullptr) return t;
  const double service_all = std::min(mean_step(c, layout, c.batch).service_s, real(c.coordinators) * one.service_s) / layers;
  result->merge = {.share = turn.merged_share,
                   .none_tokens_per_s = real(c.batch) / (layers * unmerged_turn(work).layer_s),
                   .all_tokens_per_s = real(c.batch) / (layers * (work.own_s + service_all))};
  return t;
}

StepTimes StepModel::prefill_times(const PlanCase& c, const Holders& holders) {
  StepTimes sum;
  std::optional<Layout> layout;
  if (c.workers > 0) layout.emplace(model_, hosts_, c, holders);
  for (int64_t first = 0; first < c.prompt; first += c.prefill_chunk) {
    const int64_t count = std::min(c.prefill_chunk, c.prompt - first);
    const AskedRows& asked = prefill_rows(first, count);
    const Rows r{.rows = real(count),
                 .keys = real(c.depth + first),
                 .logits = first + count == c.prompt ? 1.0 : 0.0,
                 .phase = RoutingPhase::kPrefill};
    add(sum, layout ? with_workers(*layout, asked, 0, r).times : one_process(asked, 0, r), 1);
  }
  return sum;
}

ExpertLoads StepModel::known_loads(const PlanCase& c) {
  ExpertLoads loads = loads_of(decode_rows(c.batch), 0, 2);
  if (c.knows_loads) return loads;
  loads.num_steps = 1;
  std::ranges::fill(loads.rows, 1);
  std::ranges::fill(loads.touched, 1);
  return loads;
}

StepModel::Placed StepModel::placed(const PlanCase& c) {
  Placed p;
  if (c.workers == 0) return p;
  const ExpertCost cost = chooser_cost(hosts_.back().alone.expert);
  const std::vector<LayerPlacement> placement =
      c.given != nullptr ? *c.given : place(known_loads(c), cost, c.workers, c.copies, c.is_spread);
  p.held.assign(static_cast<std::size_t>(c.workers), 0);
  for (const LayerPlacement& layer : placement)
    for (std::size_t w = 0; w < layer.size(); ++w) p.held[w] += real(std::ssize(layer[w]));
  p.fullest = std::ranges::max_element(p.held) - p.held.begin();
  for (const LayerPlacement& layer : placement) {
    p.holders.push_back(holders_of(layer, model_.num_experts));
    for (const uint64_t holders : p.holders.back()) p.lost += holders == uint64_t{1} << p.fullest ? 1 : 0;
  }
  return p;
}

void StepModel::fill_memory(const PlanCase& c, PlanResult& result) const {
  const double all_experts = real(model_.num_expert_layers * model_.num_experts) * model_.expert_bytes;
  result.coordinator_bytes = model_.coordinator_bytes + (c.workers == 0 ? all_experts : 0);
  const double of_sequence = model_.bytes_per_sequence + real(c.depth + c.context) * model_.bytes_per_token;
  result.cache_bytes = real(own_batch(c)) * of_sequence;
  const PlanSites sites = make_sites(hosts_, c.coordinators, c.workers);
  const auto home = static_cast<std::size_t>(sites.coordinator_host.front());
  const double sharing = real(sites.most_coordinators());
  for (std::size_t h = 0; h < sites.hosts.size(); ++h) {
    const double ram = sites.hosts[h]->ram_bytes;
    if (ram == 0) continue;
    const double weights =
        real(sites.workers_on[h]) * result.worker_bytes + real(sites.coordinators_on[h]) * result.coordinator_bytes;
    if (h == home && of_sequence > 0)
      result.most_sequences = std::max<int64_t>(0, static_cast<int64_t>((ram - weights) / sharing / of_sequence));
    if (weights + real(sites.coordinators_on[h]) * result.cache_bytes > ram) result.fits = false;
  }
}

StepTimes StepModel::decode(const PlanCase& asked) {
  require_case(asked, model_);
  return decode_times(asked, placed(asked).holders, nullptr);
}

StepTimes StepModel::prefill(const PlanCase& asked) {
  require_case(asked, model_);
  return prefill_times(asked, placed(asked).holders);
}

PlanResult StepModel::plan(const PlanCase& asked) {
  require_case(asked, model_);
  PlanResult result{.asked = asked};
  const Placed placement = placed(asked);
  if (asked.workers > 0)
    result.worker_bytes = placement.held[static_cast<std::size_t>(placement.fullest)] * model_.expert_bytes;
  result.decode = decode_times(asked, placement.holders, &result);
  result.prefill = prefill_times(asked, placement.holders);
  result.decode_tokens_per_s = real(asked.batch) / result.decode.sum();
  result.prefill_tokens_per_s = real(asked.prompt) / result.prefill.sum();
  result.bound = largest_part(result.decode);
  fill_memory(asked, result);
  if (asked.workers > 0) fill_death(asked, placement, result);
  return result;
}

int64_t StepModel::num_hosts() const {
  int64_t sum = 0;
  for (const PlanHost& host : hosts_) sum += host.count;
  return sum;
}

std::vector<std::size_t> best_of(std::span<const PlanResult> results) {
  std::map<std::pair<int64_t, int64_t>, std::size_t> best;  // by depth and batch
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].fits) continue;
    const auto [at, is_first] = best.emplace(std::pair(results[i].asked.depth, results[i].asked.batch), i);
    if (!is_first && results[i].decode_tokens_per_s > results[at->second].decode_tokens_per_s) at->second = i;
  }
  std::vector<std::size_t> indices;
  indices.reserve(best.size());
  for (const auto& [asked, index] : best) indices.push_back(index);
  return indices;
}

}  // namespace ferry
