#include "runtime/actions/replay_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "profiler/own_cores.h"
#include "profiler/report/lost_time/exchanges.h"
#include "profiler/report/lost_time/expert_load.h"
#include "profiler/report/lost_time/lost_time.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "runtime/actions/cost_curves.h"
#include "runtime/actions/nonnegative_fit.h"
#include "runtime/actions/roofs.h"
#include "runtime/actions/worker_overlap.h"

namespace ferry {
namespace {

double real(std::size_t value) { return static_cast<double>(value); }

/// What a row takes of a curve of one size, if reading the weights takes `read_s` and everything beyond is its rows'.
double slope_beyond(const Curve& curve, double read_s) {
  if (curve.points.empty() || read_s <= 0) return 0;
  const Curve::Point last = curve.points.back();
  return last.size > 0 ? std::max(0.0, last.seconds - read_s) / last.size : 0;
}

/// Where steps of one kind have one size only, their rows take what those of the other kind do, or what lies between both, or
/// where all are of one size, what reading the weights, seconds, does not explain.
void set_slopes(Curve& decode, Curve& prefill, double read_s) {
  const double of_decode = slope_of(decode), of_prefill = slope_of(prefill);
  double between = slope_between(decode, prefill);
  if (between == 0) between = slope_beyond(decode.points.empty() ? prefill : decode, read_s);
  decode = with_slope(std::move(decode), of_prefill > 0 ? of_prefill : between);
  prefill = with_slope(std::move(prefill), of_decode > 0 ? of_decode : between);
}

bool is_shared(const RankCapture& a, const RankCapture& b) {
  if (a.boot_id != b.boot_id || a.host != b.host) return false;
  if (a.cores.empty() || b.cores.empty()) return true;  // an older capture does not say
  const std::set<int> mine = parse_cores(a.cores);
  return std::ranges::any_of(parse_cores(b.cores), [&](int core) { return mine.contains(core); });
}

/// Fits a plan's costs to what steps, calls of experts and messages took.
class CostFinder {
 public:
  CostFinder(const ReportInput& input, std::span<const ReplayedStep> steps, std::span<const ExpertCall> calls,
             const RoutingShape& shape)
      : input_(input), steps_(steps), calls_(calls), shape_(shape), exchanges_(find_exchanges(input)) {}

  std::optional<ReplayCosts> find();

 private:
  void find_workers();
  void find_model();
  double count_sent_rows() const;
  void find_bytes();
  void find_windows();
  void find_imbalance(const WorkerOverlap& overlap);
  bool is_saturated() const;
  double busy_share(int32_t rank) const;
  void fit_host();
  void fit_workers(const WorkerOverlap& overlap);
  RankCosts coordinator_costs(StepParts ReplayedStep::*which, double ExpertCall::*time, double factor) const;
  Curve part_curve(StepParts ReplayedStep::*which, double StepParts::*part, bool is_decode) const;
  Curve exchange_curve(bool with_decode, bool with_prefill) const;
  double link_slope() const;
  double quickest_way_s() const;
  double serial_factor() const;
  double worker_thread_share() const;
  double weights_read(double StepParts::*part) const;
  double read_s(double StepParts::*part) const;
  WeightsRoof weights_roof(double StepParts::*part) const;
  PartWork part_work(StepParts ReplayedStep::*which, double StepParts::*part, bool is_decode) const;
  void continue_part(Curve& decode, Curve& prefill, StepParts ReplayedStep::*which, double StepParts::*part) const;
  Curve continued(Curve expert) const;
  bool counts(const ReplayedStep& step, bool is_decode) const {
    return is_decode ? step.prefill_rows == 0 && step.decode_rows > 0 : step.decode_rows == 0 && step.prefill_rows > 0;
  }
  double layers() const { return real(shape_.layers.size()); }

  const ReportInput& input_;
  std::span<const ReplayedStep> steps_;
  std::span<const ExpertCall> calls_;
  const RoutingShape& shape_;
  const Exchanges exchanges_;
  ReplayCosts costs_;
  std::vector<double> step_bytes_;    // of each step, both ways
  std::vector<double> step_longest_;  // of each step: seconds in which workers were at work, layer by layer
  std::vector<double> step_planned_;  // likewise, were cores all that they wait for
};

void CostFinder::find_workers() {
  const CaptureInfo& info = input_.capture.info;
  std::set<int32_t> ranks;
  const std::size_t num_experts = info.expert_rank.size();
  for (const int64_t layer : shape_.layers)
    for (std::size_t e = 0; e < num_experts; ++e)
      for (const int32_t rank : find_holders(info, static_cast<std::size_t>(layer), e))
        if (rank > 0) ranks.insert(rank);
  costs_.worker_ranks.assign(ranks.begin(), ranks.end());
  std::map<int32_t, std::size_t> worker_of;
  for (std::size_t w = 0; w < costs_.worker_ranks.size(); ++w) worker_of[costs_.worker_ranks[w]] = w;
  for (const int64_t layer : shape_.layers) {
    LayerPlacement placement(costs_.worker_ranks.size());
    for (std::size_t e = 0; e < num_experts; ++e)
      for (const int32_t rank : find_holders(info, static_cast<std::size_t>(layer), e))
        if (rank > 0) placement[worker_of[rank]].push_back({static_cast<int32_t>(e)});
    costs_.placement.push_back(std::move(placement));
  }
}

void CostFinder::find_model() {
  const CaptureInfo& info = input_.capture.info;
  PlanModel& m = costs_.model;
  m.shape = info.model.name;
  m.num_expert_layers = std::ssize(shape_.layers);
  m.num_layers = std::max<int64_t>(m.num_expert_layers, std::ssize(info.model.layer_types));
  m.num_experts = shape_.num_experts;
  m.top_k = shape_.top_k;
  double sent = 0, back = 0, rows_back = 0;
  for (const Message& message : input_.timeline.messages)
    (message.is_dispatch ? sent : back) += static_cast<double>(message.bytes);
  for (const ExpertCall& call : calls_) rows_back += call.rank > 0 ? call.rows : 0;
  const double rows_sent = count_sent_rows();
  m.row_out_bytes = rows_sent > 0 ? sent / rows_sent : 0;
  if (costs_.captured.adds_on_workers) rows_back = rows_sent;  // one for each token that a worker got
  m.row_in_bytes = rows_back > 0 ? back / rows_back : 0;
}

/// Rows that went to workers: each of a token once, however many of its experts live there.
double CostFinder::count_sent_rows() const {
  std::map<std::pair<std::size_t, int32_t>, std::pair<double, double>> asked;  // by step and rank: rows of experts, calls
  for (const ExpertCall& call : calls_) {
    if (call.rank <= 0) continue;
    auto& [rows, count] = asked[{call.step, call.rank}];
    rows += call.rows, count += 1;
  }
  double sent = 0;
  for (const auto& [key, sum] : asked) {
    const double tokens = steps_[key.first].rows() * std::min(1.0, layers() / sum.second);  // of a call; halves have fewer
    const double share = std::min(1.0, sum.first / std::max(1.0, sum.second * tokens * real(shape_.top_k)));
    sent += sum.second * tokens * (1 - std::pow(1 - share, real(shape_.top_k)));
  }
  return sent;
}

void CostFinder::find_bytes() {
  const StepIndex index(input_.timeline);
  step_bytes_.assign(steps_.size(), 0);
  for (const Message& message : input_.timeline.messages) {
    const int32_t step = index.find(message.step);
    if (step >= 0) step_bytes_[static_cast<std::size_t>(step)] += static_cast<double>(message.bytes);
  }
}

void CostFinder::find_windows() {
  const StepIndex index(input_.timeline);
  step_longest_.assign(steps_.size(), 0);
  step_planned_.assign(steps_.size(), 0);
  for (const SeenExchange& exchange : exchanges_.list) {
    const int32_t step = index.find(exchange.id.step);
    if (step < 0) continue;
    int64_t first = INT64_MAX, last = INT64_MIN, longest = 0;
    double in_turn = 0;
    for (const Reply& reply : exchanges_.replies_of(exchange)) {
      if (reply.rows == 0) continue;
      first = std::min(first, reply.arrived_ns), last = std::max(last, reply.posted_ns);
      longest = std::max(longest, reply.work_ns());
      in_turn += busy_share(reply.rank) * static_cast<double>(reply.work_ns());
    }
    if (last <= first) continue;
    const auto at = static_cast<std::size_t>(step);
    step_longest_[at] += 1e-9 * static_cast<double>(costs_.is_together ? last - first : longest);
    step_planned_[at] += 1e-9 * std::max(in_turn, static_cast<double>(longest));
  }
}

/// Of workers with cores of their own, since for others no placement is proposed.
void CostFinder::find_imbalance(const WorkerOverlap& overlap) {
  costs_.step_imbalance.assign(steps_.size(), 0);
  if (costs_.is_together || costs_.worker_ranks.size() < 2) return;
  const StepIndex index(input_.timeline);
  for (std::size_t i = 0; i < exchanges_.list.size(); ++i) {
    const int32_t step = index.find(exchanges_.list[i].id.step);
    if (step >= 0) costs_.step_imbalance[static_cast<std::size_t>(step)] += overlap.imbalance(i);
  }
}

/// Of its host's cores, how many a rank's threads take.
double CostFinder::busy_share(int32_t rank) const {
  const RankCapture& r = input_.capture.ranks.at(static_cast<std::size_t>(rank));
  const std::set<int> cores = parse_cores(r.cores);
  if (cores.empty()) return 1;
  return std::min(1.0, std::max(1, r.num_threads) / real(cores.size()));
}

/// Whether workers, all at once, have more to do than their cores can: then none of them is what the others wait for.
bool CostFinder::is_saturated() const {
  double in_turn = 0, longest = 0;
  for (const SeenExchange& exchange : exchanges_.list) {
    double of_all = 0, of_one = 0;
    for (const Reply& reply : exchanges_.replies_of(exchange)) {
      of_all += busy_share(reply.rank) * static_cast<double>(reply.work_ns());
      of_one = std::max(of_one, static_cast<double>(reply.work_ns()));
    }
    in_turn += of_all, longest += of_one;
  }
  return in_turn >= longest;
}

Curve CostFinder::part_curve(StepParts ReplayedStep::*which, double StepParts::*part, bool is_decode) const {
  std::vector<SizedTime> times;
  for (const ReplayedStep& step : steps_)
    if (counts(step, is_decode)) times.push_back({step.rows(), (step.*which).*part});
  return mean_curve(times);
}

/// What a layer's messages take beside the workers' work, over bytes both ways.
Curve CostFinder::exchange_curve(bool with_decode, bool with_prefill) const {
  std::vector<SizedTime> times;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const ReplayedStep& step = steps_[i];
    const bool is_wanted = (with_decode && counts(step, true)) || (with_prefill && counts(step, false));
    if (!is_wanted || step_bytes_[i] <= 0) continue;
    const double hidden = costs_.is_together ? 0 : step.parts.shared;  // workers are at work meanwhile
    const double beside = std::max(0.0, step.parts.exchange + hidden - step_longest_[i]);
    times.push_back({step_bytes_[i] / layers(), beside / layers()});
  }
  Curve curve = with_slope(mean_curve(times), link_slope());
  if (!curve.points.empty() && curve.points.front().size == 0 && !costs_.is_together)
    curve.points.front().seconds = std::min(curve.points.front().seconds, quickest_way_s());
  return curve;
}

/// What an exchange takes beside work with the worker whose way is the shortest, were each as quick as the first twentieth, in
/// which nobody waited for a core: what any worker's takes whatever its bytes is no more.
double CostFinder::quickest_way_s() const {
  std::map<int32_t, std::vector<double>> ways;  // of each worker
  for (const SeenExchange& exchange : exchanges_.list)
    for (const Reply& reply : exchanges_.replies_of(exchange))
      if (reply.rows > 0) ways[reply.rank].push_back(1e-9 * static_cast<double>(reply.way_ns()));
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [rank, seconds] : ways) least = std::min(least, percentile(seconds, 0.05));
  return least;
}

/// Seconds for each byte of an exchange, by messages of unlike sizes: rows that go out have fewer bytes than those that come
/// back. The worker whose bytes take longest decides, and it has its share of them.
double CostFinder::link_slope() const {
  std::map<int32_t, std::vector<FitPoint>> messages;  // by worker
  for (const Message& m : input_.timeline.messages) {
    const double seconds = 1e-9 * static_cast<double>(m.receive_end_ns - std::max(m.send_begin_ns, m.receive_begin_ns));
    messages[m.is_dispatch ? m.target : m.source].push_back(
        {{1, static_cast<double>(m.bytes), 0}, std::max(0.0, seconds), 1 / std::max(1.0, static_cast<double>(m.bytes))});
  }
  double most = 0;
  for (const auto& [rank, points] : messages) most = std::max(most, fit_nonnegative(points)[1]);
  return most / std::max(1.0, real(costs_.worker_ranks.size()));
}

/// What a worker that shares cores would take with all of them, as a share of what it takes: what it did with its threads, and
/// what of that was waiting for the others, as workers were at work for less than the sum of all.
double CostFinder::serial_factor() const {
  double planned = 0, windows = 0;
  for (const double window : step_longest_) windows += window;
  for (const double window : step_planned_) planned += window;
  return planned > 0 ? busy_share(costs_.worker_ranks.front()) * std::min(1.0, windows / planned) : 1;
}

/// Threads of a worker over those of the coordinator.
double CostFinder::worker_thread_share() const {
  const std::vector<RankCapture>& ranks = input_.capture.ranks;
  const double worker = std::max(1, ranks.at(static_cast<std::size_t>(costs_.worker_ranks.front())).num_threads);
  return worker / std::max(1, ranks.front().num_threads);
}

RankCosts CostFinder::coordinator_costs(StepParts ReplayedStep::*which, double ExpertCall::*time, double factor) const {
  RankCosts c;
  c.own_decode = part_curve(which, &StepParts::own, true);
  c.own_prefill = part_curve(which, &StepParts::own, false);
  c.shared_decode = part_curve(which, &StepParts::shared, true);
  c.shared_prefill = part_curve(which, &StepParts::shared, false);
  continue_part(c.own_decode, c.own_prefill, which, &StepParts::own);
  continue_part(c.shared_decode, c.shared_prefill, which, &StepParts::shared);
  std::vector<SizedTime> heads;
  for (const ReplayedStep& step : steps_)
    if (counts(step, true)) heads.push_back({step.rows(), (step.*which).head});
  if (heads.empty())
    for (const ReplayedStep& step : steps_)
      if (counts(step, false)) heads.push_back({1, (step.*which).head});
  c.head = mean_curve(heads);
  PartWork head = part_work(which, &StepParts::head, true);
  if (head.rows == 0) head = part_work(which, &StepParts::head, false), head.rows = 1;
  if (head.weights > 0) {
    c.head = with_work(std::move(c.head), head, weights_roof(&StepParts::head));
  } else {
    const double head_slope = slope_beyond(c.head, read_s(&StepParts::head));
    c.head = with_slope(std::move(c.head), head_slope);
  }
  const ExpertCosts experts = fit_ranked_calls(calls_, time).costs;
  c.expert_call = factor * experts.call;
  c.expert = continued(experts.expert).times(factor);
  return c;
}

/// Bytes of all weights of one of the coordinator's parts.
double CostFinder::weights_read(double StepParts::*part) const {
  double bytes = 0;
  for (const OperatorFacts& facts : input_.capture.info.model.operators)
    if (part_of(facts.zone, !costs_.worker_ranks.empty()) == part) bytes += real(facts.num_layers) * facts.bytes.fixed;
  return bytes;
}

/// What memory takes to read them once; 0 where its roof is not known.
double CostFinder::read_s(double StepParts::*part) const {
  const double roof = input_.capture.info.read_bytes_per_s;
  return roof > 0 ? weights_read(part) / roof : 0;
}

WeightsRoof CostFinder::weights_roof(double StepParts::*part) const {
  double row_s = 0;
  for (const OperatorFacts& facts : input_.capture.info.model.operators) {
    if (part_of(facts.zone, !costs_.worker_ranks.empty()) != part || !multiplies_weights(facts)) continue;
    const double reached = reached_flops_per_s(input_, facts);
    if (reached > 0) row_s += real(facts.num_layers) * facts.flop.per_row / reached;
  }
  const double streamed = streamed_bytes_per_s(input_.capture.info);
  return {.read = streamed > 0 ? weights_read(part) / streamed : 0, .row = row_s};
}

PartWork CostFinder::part_work(StepParts ReplayedStep::*which, double StepParts::*part, bool is_decode) const {
  PartWork sum;
  double count = 0, seen = 0;
  for (const ReplayedStep& step : steps_) {
    if (!counts(step, is_decode)) continue;
    count += 1, seen += step.parts.*part;
    sum.rows += step.rows(), sum.all += (step.*which).*part;
    sum.weights += step.weights.*part, sum.once += step.once.*part;
  }
  if (count == 0 || seen <= 0) return {};
  const double share = sum.all / seen;  // undisturbed, all of it is shorter alike
  return {.rows = sum.rows / count,
          .all = sum.all / count,
          .weights = share * sum.weights / count,
          .once = share * sum.once / count};
}

/// For fewer and more rows than any had: by operators where the capture says what they do, else by what else it has.
void CostFinder::continue_part(Curve& decode, Curve& prefill, StepParts ReplayedStep::*which, double StepParts::*part) const {
  if (input_.capture.info.model.operators.empty()) {
    set_slopes(decode, prefill, read_s(part));
    return;
  }
  decode = with_work(std::move(decode), part_work(which, part, true), weights_roof(part));
  prefill = with_work(std::move(prefill), part_work(which, part, false), weights_roof(part));
}

/// An expert's curve for more and for fewer rows than any had, by what those who compute experts can multiply and read.
Curve CostFinder::continued(Curve expert) const {
  const CaptureInfo& info = input_.capture.info;
  double row_s = 0, bytes = 0;
  for (const Zone zone : {Zone::kGroupedGateUp, Zone::kGroupedDown}) {
    const OperatorFacts* facts = find_operator(info.model.operators, zone);
    if (facts == nullptr) continue;
    const double reached = reached_flops_per_s(input_, *facts);
    bytes += facts->bytes.per_b;
    if (reached > 0) row_s += facts->flop.per_row / reached;
  }
  const double streamed = streamed_bytes_per_s(info);
  if (!expert.points.empty() && bytes > 0 && streamed > 0) {
    const double least = std::min(expert.points.front().seconds, bytes / streamed);
    expert.points.insert(expert.points.begin(), {0, least});
  }
  return with_roof(std::move(expert), costs_.worker_ranks.empty() ? row_s : row_s / worker_thread_share());
}

void CostFinder::fit_host() {
  const RankCapture& own = input_.capture.ranks.front();
  const std::set<int> cores = parse_cores(own.cores);
  PlanHost host{.name = own.host,
                .count = 1,
                .role = costs_.is_together || costs_.worker_ranks.empty() ? HostRole::kAny : HostRole::kCoordinators,
                .cores = cores.empty() ? std::max(1, own.num_threads) : std::ssize(cores),
                .read_bytes_per_s = input_.capture.info.read_bytes_per_s,
                .load_bytes_per_s = 1e9,
                .flops_per_s = input_.capture.info.flops_per_s,
                .link_bytes_per_s = 1e18,
                .handling = {},
                .exchange = {},
                .is_measured = true,
                .alone = {},
                .together = {}};
  const auto workers = std::ssize(costs_.worker_ranks);
  if (workers > 0)
    host.worker_threads =
        std::max(1, input_.capture.ranks.at(static_cast<std::size_t>(costs_.worker_ranks.front())).num_threads);
  if (!costs_.is_together) {
    host.alone = coordinator_costs(&ReplayedStep::parts, &ExpertCall::seconds, 1);
    const Curve beside = exchange_curve(true, true);
    if (!beside.points.empty()) host.link_s = beside.points.front().seconds;
    host.handling = beside;
    costs_.hosts.push_back(std::move(host));
    return;
  }
  host.alone = coordinator_costs(&ReplayedStep::quiet, &ExpertCall::quiet, std::min(1.0, worker_thread_share()));
  SharedCosts shared{.workers = workers,
                     .costs = coordinator_costs(&ReplayedStep::parts, &ExpertCall::seconds, serial_factor())};
  shared.costs.exchange_decode = exchange_curve(true, false);
  shared.costs.exchange_prefill = exchange_curve(false, true);
  host.together.push_back(std::move(shared));
  costs_.hosts.push_back(std::move(host));
}

/// Workers that do not share cores: each on a host of its own, as fast as it was.
void CostFinder::fit_workers(const WorkerOverlap& overlap) {
  const RankedCosts ranked = overlap.are_alike()
                                 ? RankedCosts{.costs = fit_expert_calls(calls_, &ExpertCall::seconds), .factors = {}}
                                 : fit_ranked_calls(calls_, &ExpertCall::seconds);
  const ExpertCosts& pooled = ranked.costs;
  for (const int32_t rank : costs_.worker_ranks) {
    const auto found = ranked.factors.find(rank);
    const double factor = found != ranked.factors.end() ? found->second : 1;
    PlanHost host = costs_.hosts.front();
    host.name = input_.capture.ranks.at(static_cast<std::size_t>(rank)).host + " rank " + std::to_string(rank);
    host.role = HostRole::kWorkers;
    host.cores = std::max(1, input_.capture.ranks.at(static_cast<std::size_t>(rank)).num_threads);
    host.alone.expert_call = factor * pooled.call;
    host.alone.expert = continued(pooled.expert).times(factor);
    costs_.hosts.push_back(std::move(host));
  }
}

std::optional<ReplayCosts> CostFinder::find() {
  const CaptureInfo& info = input_.capture.info;
  if (shape_.layers.empty() || calls_.empty() || info.level < TraceLevel::kOperators || !info.model.top_k) return {};
  for (const int64_t layer : shape_.layers)
    if (layer < 0 || layer >= std::ssize(info.expert_tokens)) return {};
  if (shape_.num_experts != std::ssize(info.expert_rank)) return {};
  find_workers();
  if (std::ssize(costs_.worker_ranks) > std::min(kMaxWorkers, shape_.num_experts)) return {};
  costs_.is_together = !costs_.worker_ranks.empty() && share_cores(input_) && is_saturated();
  const auto setting = [&](const char* name) {
    const auto found = info.settings.find(name);
    return found == info.settings.end() ? std::string() : found->second;
  };
  costs_.captured.workers = std::ssize(costs_.worker_ranks);
  costs_.captured.adds_on_workers = setting("--combine") == "fast";
  costs_.captured.micro_batch_rows = setting("--micro-batch").empty() ? 0 : std::atoll(setting("--micro-batch").c_str());
  find_model();
  find_bytes();
  find_windows();
  const WorkerOverlap overlap(input_, exchanges_, calls_);
  find_imbalance(overlap);
  costs_.own_roof = weights_roof(&StepParts::own);
  fit_host();
  if (!costs_.is_together) fit_workers(overlap);
  return std::move(costs_);
}

}  // namespace

bool share_cores(const ReportInput& input) {
  constexpr double kWaits = 0.05;  // of the time in steps
  const std::vector<RankCapture>& ranks = input.capture.ranks;
  if (ranks.size() < 2) return false;
  bool overlap = true;
  for (const RankCapture& rank : ranks) overlap = overlap && is_shared(ranks.front(), rank);
  if (!overlap) return false;
  int64_t core_wait_ns = 0;
  for (const RankLoss& loss : find_lost_time(input).ranks) core_wait_ns += loss.core_wait_ns;
  return static_cast<double>(core_wait_ns) > kWaits * static_cast<double>(total_step_ns(input.timeline));
}

std::optional<ReplayCosts> find_replay_costs(const ReportInput& input, std::span<const ReplayedStep> steps,
                                             std::span<const ExpertCall> calls, const RoutingShape& shape) {
  return CostFinder(input, steps, calls, shape).find();
}

}  // namespace ferry
