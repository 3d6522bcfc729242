#include "profiler/report/lost_time/lost_time.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "profiler/report/incidents/worker_history.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/intervals.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

int64_t overlap(const IntervalSet& set, int64_t begin_ns, int64_t end_ns) {
  return begin_ns < end_ns ? total(clip(set, {begin_ns, end_ns})) : 0;
}

/// The median of what the others have, or of `one` if it has no others.
template <class Get>
int64_t usual_of_others(std::span<const Reply> replies, const Reply& one, Get&& get) {
  std::vector<double> others;
  for (const Reply& reply : replies) {
    if (&reply != &one) others.push_back(static_cast<double>(get(reply)));
  }
  return others.empty() ? get(one) : static_cast<int64_t>(median(std::move(others)));
}

/// What threads waited for cores. A worker's own thread reads it about once a millisecond, so a reading tells of several
/// exchanges; of its other threads the one that waited longest in the step counts. Of the coordinator's only the thread that
/// steps counts: while a helper of the pool has no core, the others do its tasks. A wait is used up as it is charged, so that
/// none counts twice.
class CoreWaits {
 public:
  explicit CoreWaits(const ReportInput& input) : readings_(input.capture.ranks.size()) {
    std::map<std::tuple<int32_t, uint32_t, uint32_t>, int64_t> by_thread;  // rank, step, thread
    const int32_t step_lane = find_step_lane(input.timeline);
    const int64_t stepping = step_lane < 0 ? 0 : input.timeline.lanes[static_cast<std::size_t>(step_lane)].tid;
    for (const CounterSample& sample : input.timeline.counters) {
      if (sample.zone != Zone::kCoreWait || sample.at.step == kNoStep) continue;
      const int64_t ns = sample.value * 1000;
      if (sample.rank > 0 && sample.at.layer >= 0) {
        add_reading(sample, ns);
      } else if (sample.rank > 0 || sample.b == static_cast<uint32_t>(stepping)) {
        by_thread[{sample.rank, sample.at.step, sample.b}] += ns;
      }
    }
    for (const auto& [key, ns] : by_thread) {
      int64_t& most = steps_[{std::get<0>(key), std::get<1>(key)}];
      most = std::max(most, ns);
    }
  }

  /// A step of the coordinator cannot have lost more than its length, whatever was counted before it began.
  void limit_coordinator_to(const std::vector<StepInfo>& steps) {
    for (const StepInfo& step : steps) {
      const auto own = steps_.find({0, step.step});
      if (own != steps_.end()) own->second = std::min(own->second, step.end_ns - step.begin_ns);
    }
  }
  /// Of the coordinator in a step, or of a worker's other threads.
  int64_t& in_step(int32_t rank, uint32_t step) { return steps_[{rank, step}]; }
  /// Within steps. A counter tells of all since it was read last, also of what lies between two steps, so a step's wait is at
  /// most its length.
  int64_t total_of(int32_t rank, const std::vector<StepInfo>& steps) const {
    std::map<uint32_t, int64_t> by_step;
    for (const Reading& reading : readings_.at(static_cast<std::size_t>(rank))) by_step[reading.step] += reading.ns;
    for (const auto& [key, ns] : steps_) by_step[key.second] += key.first == rank ? ns : 0;
    int64_t sum = 0;
    for (const StepInfo& step : steps) {
      const auto found = by_step.find(step.step);
      if (found != by_step.end()) sum += std::min(found->second, step.end_ns - step.begin_ns);
    }
    return sum;
  }
  /// Takes up to `ns` from what may have held a worker up between the dispatch and its reply, and returns it.
  int64_t take(const Reply& reply, uint32_t step, int64_t ns) {
    std::vector<Reading>& readings = readings_.at(static_cast<std::size_t>(reply.rank));
    const auto first =
        std::upper_bound(readings.begin(), readings.end(), reply.dispatched_ns,
                         [](int64_t dispatched_ns, const Reading& reading) { return dispatched_ns < reading.at_ns; });
    int64_t taken = 0;
    for (auto reading = first; reading != readings.end() && reading->since_ns < reply.back_ns; ++reading) {
      const int64_t within_ns = std::min(reading->at_ns, reply.back_ns) - std::max(reading->since_ns, reply.dispatched_ns);
      taken += take_from(reading->ns, std::min(within_ns, ns - taken));
    }
    return taken + take_from(in_step(reply.rank, step), ns - taken);
  }
  static int64_t take_from(int64_t& waited, int64_t ns) {
    const int64_t taken = std::clamp<int64_t>(ns, 0, waited);
    waited -= taken;
    return taken;
  }

 private:
  /// Of a worker's own thread.
  struct Reading {
    int64_t since_ns = 0, at_ns = 0;
    int64_t ns = 0;  // waited between the two, not yet charged
    uint32_t step = 0;
  };

  /// Captures that do not say since when a reading counts: since the one before.
  void add_reading(const CounterSample& sample, int64_t ns) {
    std::vector<Reading>& readings = readings_.at(static_cast<std::size_t>(sample.rank));
    const int64_t before_ns = readings.empty() ? 0 : readings.back().at_ns;
    const int64_t since_ns = sample.since_ns < sample.at_ns ? std::max(sample.since_ns, before_ns) : before_ns;
    readings.push_back({.since_ns = since_ns, .at_ns = sample.at_ns, .ns = ns, .step = sample.at.step});
  }

  std::vector<std::vector<Reading>> readings_;  // [num_ranks] by time
  std::map<std::pair<int32_t, uint32_t>, int64_t> steps_;
};

/// Nanoseconds that a rank usually took for its rows.
struct UsualWork {
  std::map<int64_t, double> by_rows;
  double row_ns = 0;  // mean

  /// Between numbers of rows that it had along a line, for more than those in proportion, for fewer as long as for the fewest.
  double of(int64_t rows) const {
    const auto above = by_rows.lower_bound(rows);
    if (above == by_rows.begin()) return above->second;
    const auto [low, low_ns] = *std::prev(above);
    if (above == by_rows.end()) return std::max(low_ns, row_ns * static_cast<double>(rows));
    return std::lerp(low_ns, above->second, static_cast<double>(rows - low) / static_cast<double>(above->first - low));
  }
};

class LostTimeFinder {
 public:
  explicit LostTimeFinder(const ReportInput& input)
      : input_(input),
        exchanges_(find_exchanges(input)),
        stops_(find_stops(input)),
        core_waits_(input),
        steps_(input.timeline) {
    const std::vector<StepInfo>& steps = input.timeline.steps;
    core_waits_.limit_coordinator_to(steps);
    found_.waits.resize(steps.size());
    stop_in_exchanges_.resize(steps.size());
    held_up_.resize(steps.size());
    for (std::size_t r = 0; r < input.capture.ranks.size(); ++r) {
      RankLoss loss{.rank = static_cast<int32_t>(r)};
      loss.more_rows_ns.resize(static_cast<std::size_t>(count_layers(input)));
      loss.core_wait_ns = core_waits_.total_of(loss.rank, steps);
      for (const Interval& stop : stops_[r]) {
        const auto after = std::upper_bound(steps.begin(), steps.end(), stop.begin,
                                            [](int64_t at, const StepInfo& step) { return at < step.end_ns; });
        if (after != steps.end() && after->begin_ns < stop.end) loss.stops.push_back(stop);
      }
      found_.ranks.push_back(std::move(loss));
    }
    for (const CounterSample& sample : input.timeline.counters) {
      if (sample.zone == Zone::kPreemptions) found_.ranks.at(static_cast<std::size_t>(sample.rank)).preemptions += sample.value;
    }
  }

  LostTime find() {
    find_usual_work();
    for (const SeenExchange& exchange : exchanges_.list) {
      const int32_t step = steps_.find(exchange.id.step);
      if (step >= 0) look_at(exchange, static_cast<std::size_t>(step));
    }
    charge_waits_in_vain();
    for (std::size_t s = 0; s < input_.timeline.steps.size(); ++s) charge_coordinator(s);
    find_usual();
    for (const auto& [at, ns] : lost_in_step_) {
      const int64_t stopped_ns = ns[static_cast<std::size_t>(Loss::kStopped)];
      if (stopped_ns > 0) rank(at.first).stopped_ns[at.second] = stopped_ns;
    }
    return std::move(found_);
  }

 private:
  void look_at(const SeenExchange& exchange, std::size_t step);
  void correct_for_coordinator(const SeenExchange& exchange, std::size_t step);
  void charge_worker(const SeenExchange& exchange, std::size_t step, const Reply& last, int64_t lost_ns);
  void divide_wait(const SeenExchange& exchange, const Reply& last, int64_t no_core_ns, WaitParts& parts) const;
  void charge_waits_in_vain();
  void charge_coordinator(std::size_t step);
  void find_usual();
  void find_usual_work();
  std::optional<double> usual_work_ns(int64_t rows, int32_t rank, Phase phase) const;
  double more_rows_ns(const Reply& last, int64_t other_rows, Phase phase) const;

  RankLoss& rank(int32_t r) { return found_.ranks[static_cast<std::size_t>(r)]; }
  const IntervalSet& stops_of(int32_t r) const { return stops_[static_cast<std::size_t>(r)]; }
  std::span<Reply> replies_of(const SeenExchange& exchange) {
    return std::span(exchanges_.replies).subspan(exchange.first, exchange.last - exchange.first);
  }

  const ReportInput& input_;
  Exchanges exchanges_;
  const std::vector<IntervalSet> stops_;
  CoreWaits core_waits_;
  const StepIndex steps_;
  LostTime found_;
  std::map<std::pair<int32_t, std::size_t>, std::array<int64_t, kNumLosses>> lost_in_step_;  // of a worker
  std::map<std::pair<Phase, int32_t>, UsualWork> usual_work_;                                // of a rank in steps of a phase
  std::vector<int64_t> stop_in_exchanges_;  // [step] the coordinator's stops that exchanges have dealt with
  std::vector<int64_t> held_up_;            // [step] its waits for a core that exchanges have dealt with
  int64_t dealt_until_ns_ = 0;              // exchanges overlap where a layer has two micro-batches
};

/// Rows and replies that wait for a coordinator that does not run are there all the same; it is charged with what that cost.
void LostTimeFinder::correct_for_coordinator(const SeenExchange& exchange, std::size_t step) {
  const IntervalSet& stops = stops_of(0);
  int64_t& core_wait_ns = core_waits_.in_step(0, exchange.id.step);
  int64_t all_back_ns = exchange.begin_ns, held_up_ns = 0;
  for (Reply& reply : replies_of(exchange)) {
    const int64_t usual_ns = reply.posted_ns + exchanges_.usual_back_ns[static_cast<std::size_t>(reply.rank)];
    if (overlap(stops, reply.posted_ns, reply.back_ns) > 0) reply.back_ns = std::min(reply.back_ns, usual_ns);
    const int64_t taken_ns = std::clamp<int64_t>(reply.back_ns - usual_ns, 0, core_wait_ns);
    reply.back_ns -= taken_ns;
    held_up_ns = std::max(held_up_ns, taken_ns);
    // A large message needs both ends: its rows may stay with a coordinator that is stopped after it posted them.
    const int64_t held_rows_ns = overlap(stops, reply.dispatched_ns, reply.arrived_ns);
    for (int64_t* ns : {&reply.arrived_ns, &reply.posted_ns, &reply.back_ns}) *ns -= held_rows_ns;
    reply.free_ns = std::min(reply.free_ns, reply.arrived_ns);
    all_back_ns = std::max(all_back_ns, reply.back_ns - overlap(stops, exchange.begin_ns, reply.dispatched_ns));
  }
  core_wait_ns -= held_up_ns;
  held_up_[step] += held_up_ns;
  rank(0).ns[static_cast<std::size_t>(Loss::kNoCore)] += held_up_ns;
  const int64_t begin_ns = std::max(exchange.begin_ns, dealt_until_ns_);
  const int64_t stopped_ns = overlap(stops, begin_ns, exchange.done_ns);
  dealt_until_ns_ = std::max(dealt_until_ns_, exchange.done_ns);
  if (stopped_ns == 0) return;
  stop_in_exchanges_[step] += stopped_ns;
  const int64_t ready_ns = exchange.ready_ns - overlap(stops, begin_ns, exchange.ready_ns);
  const int64_t saved_ns = exchange.done_ns - std::max(all_back_ns, ready_ns);
  rank(0).ns[static_cast<std::size_t>(Loss::kStopped)] += std::clamp<int64_t>(saved_ns, 0, stopped_ns);
}

void LostTimeFinder::look_at(const SeenExchange& exchange, std::size_t step) {
  correct_for_coordinator(exchange, step);
  const std::span<const Reply> replies = replies_of(exchange);
  const Reply* last = &replies.front();
  for (const Reply& reply : replies) {
    ++rank(reply.rank).exchanges;
    if (reply.back_ns > last->back_ns) last = &reply;
  }
  int64_t second_ns = exchange.ready_ns;
  double bound_ns = 0;
  for (const Reply& reply : replies) {
    if (&reply == last) continue;
    second_ns = std::max(second_ns, reply.back_ns);
    bound_ns = std::max(bound_ns, clock_bound_ns(input_, last->rank, reply.rank));
  }
  const int64_t no_core_before = rank(last->rank).at(Loss::kNoCore);
  const int64_t lost_ns = last->back_ns - second_ns;
  if (static_cast<double>(lost_ns) > bound_ns && lost_ns > 0) charge_worker(exchange, step, *last, lost_ns);
  divide_wait(exchange, *last, rank(last->rank).at(Loss::kNoCore) - no_core_before, found_.waits[step]);
}

void LostTimeFinder::find_usual_work() {
  std::map<std::pair<Phase, int32_t>, std::map<int64_t, std::vector<double>>> seen;
  for (const SeenExchange& exchange : exchanges_.list) {
    const int32_t step = steps_.find(exchange.id.step);
    if (step < 0) continue;
    const Phase phase = input_.timeline.steps[static_cast<std::size_t>(step)].phase;
    for (const Reply& reply : replies_of(exchange))
      if (reply.rows > 0) seen[{phase, reply.rank}][reply.rows].push_back(static_cast<double>(reply.work_ns()));
  }
  for (auto& [key, sizes] : seen) {
    double all_rows = 0, all_ns = 0;
    UsualWork& usual = usual_work_[key];
    for (auto& [rows, times] : sizes) {
      const auto count = static_cast<double>(times.size());
      const double ns = usual.by_rows[rows] = median(std::move(times));
      all_rows += count * static_cast<double>(rows), all_ns += count * ns;
    }
    usual.row_ns = all_ns / all_rows;
  }
}

/// What ranks other than `rank` usually take for so many rows in steps of a phase. Nothing if they never have any.
std::optional<double> LostTimeFinder::usual_work_ns(int64_t rows, int32_t rank, Phase phase) const {
  std::vector<double> others;
  for (const auto& [key, usual] : usual_work_)
    if (key.first == phase && key.second != rank) others.push_back(usual.of(rows));
  if (others.empty()) return {};
  return median(std::move(others));
}

/// Nanoseconds by which the others take longer for as many rows as `last` has than for `other_rows`; infinite if they never
/// have any, so that there is nothing to hold it against.
double LostTimeFinder::more_rows_ns(const Reply& last, int64_t other_rows, Phase phase) const {
  if (last.rows <= other_rows) return 0;
  const std::optional<double> same = usual_work_ns(last.rows, last.rank, phase);
  if (!same) return std::numeric_limits<double>::infinity();
  const double fewer = other_rows > 0 ? usual_work_ns(other_rows, last.rank, phase).value_or(0) : 0;
  return std::max(*same - fewer, 0.0);
}

/// First what the system says: it was stopped, it had no core. What is left goes where it stands out against the others.
void LostTimeFinder::charge_worker(const SeenExchange& exchange, std::size_t step, const Reply& last, int64_t lost_ns) {
  const std::span<const Reply> replies = exchanges_.replies_of(exchange);
  RankLoss& loss = rank(last.rank);
  const auto charge = [&](Loss cause, int64_t ns) {
    loss.ns[static_cast<std::size_t>(cause)] += ns;
    lost_in_step_[{last.rank, step}][static_cast<std::size_t>(cause)] += ns;
  };
  ++loss.last;
  const int64_t stopped_ns = std::min(lost_ns, overlap(stops_of(last.rank), last.dispatched_ns, last.back_ns));
  charge(Loss::kStopped, stopped_ns);
  int64_t left_ns = lost_ns - stopped_ns;
  const int64_t no_core_ns = core_waits_.take(last, exchange.id.step, left_ns);
  charge(Loss::kNoCore, no_core_ns);
  left_ns -= no_core_ns;

  const auto others = [&](auto get) { return usual_of_others(replies, last, get); };
  const int64_t other_rows = others([](const Reply& r) { return r.rows; });
  loss.rows += last.rows;
  loss.other_rows += static_cast<double>(other_rows);
  if (replies.size() < 2) return;  // one worker: it is always last, and there is nothing to hold it against
  const int64_t other_work_ns = others([](const Reply& r) { return r.work_ns(); });
  const int64_t stopped_at_work_ns = overlap(stops_of(last.rank), last.arrived_ns, last.posted_ns);
  const int64_t work_ns = std::max<int64_t>(last.work_ns() - stopped_at_work_ns - other_work_ns, 0);
  const double more_ns = more_rows_ns(last, other_rows, input_.timeline.steps[step].phase);
  const int64_t by_rows_ns = more_ns < static_cast<double>(work_ns) ? static_cast<int64_t>(more_ns) : work_ns;
  const int64_t way_ns = last.way_ns() - (stopped_ns - std::min(stopped_ns, stopped_at_work_ns));
  const std::array<std::pair<Loss, int64_t>, 3> parts = {
      {{Loss::kLink, std::max<int64_t>(way_ns - others([](const Reply& r) { return r.way_ns(); }), 0)},
       {Loss::kSlow, work_ns - by_rows_ns},
       {Loss::kOrder, std::max<int64_t>(last.dispatched_ns - others([](const Reply& r) { return r.dispatched_ns; }), 0)}}};
  double sum = 0;
  for (const auto& [cause, ns] : parts) sum += static_cast<double>(ns);
  // Where two micro-batches are under way, a worker that is behind with the first is later with the second than that one costs.
  const double share = sum > 0 ? std::min(static_cast<double>(left_ns) / sum, 1.0) : 0;
  for (const auto& [cause, ns] : parts) {
    const auto charged_ns = static_cast<int64_t>(share * static_cast<double>(ns));
    charge(cause, charged_ns);
    left_ns -= charged_ns;
  }
  // Somebody has to compute its rows: they explain what is left.
  const int64_t rows_ns = std::min(left_ns, by_rows_ns);
  charge(Loss::kMoreRows, rows_ns);
  loss.more_rows_ns.at(static_cast<std::size_t>(exchange.id.layer)) += rows_ns;
}

/// Exchanges have no reply of a worker that the coordinator ceased to wait for: it lost what it had waited by then.
void LostTimeFinder::charge_waits_in_vain() {
  const WorkerHistory history = find_worker_history(input_);
  if (history.events.empty()) return;
  std::set<std::pair<ExchangeId, int32_t>> replied;
  for (const SeenExchange& exchange : exchanges_.list)
    for (const Reply& reply : replies_of(exchange)) replied.insert({exchange.id, reply.rank});
  for (const Slice& slice : input_.timeline.slices) {
    const int32_t step = slice.zone == Zone::kWaitCombine ? steps_.find(slice.step) : -1;
    const auto peer = static_cast<int32_t>(slice.b);
    if (step < 0 || !was_in_vain(slice, history) || replied.contains({exchange_of(slice), peer})) continue;
    const int64_t stopped_ns = overlap(stops_of(peer), slice.begin_ns, slice.end_ns);
    rank(peer).ns[static_cast<std::size_t>(Loss::kStopped)] += stopped_ns;
    lost_in_step_[{peer, static_cast<std::size_t>(step)}][static_cast<std::size_t>(Loss::kStopped)] += stopped_ns;
    WaitParts& waits = found_.waits[static_cast<std::size_t>(step)];
    waits.not_running += stopped_ns;
    waits.taking = std::max<int64_t>(waits.taking - stopped_ns, 0);  // if others were back meanwhile
  }
}

/// Backwards from the last reply: on its way, computed, rows on their way; each as far as the coordinator waited.
void LostTimeFinder::divide_wait(const SeenExchange& exchange, const Reply& last, int64_t no_core_ns, WaitParts& parts) const {
  const IntervalSet& stops = stops_of(last.rank);
  const auto within = [&](int64_t begin_ns, int64_t end_ns) {
    const int64_t from = std::max(begin_ns, exchange.ready_ns), to = std::min(end_ns, exchange.done_ns);
    const int64_t stopped_ns = overlap(stops, from, to);
    parts.not_running += stopped_ns;
    return std::max<int64_t>(to - from, 0) - stopped_ns;
  };
  int64_t wire_ns = within(last.posted_ns, last.back_ns) + within(last.free_ns, last.arrived_ns);
  int64_t experts_ns = within(last.arrived_ns, last.posted_ns) + within(last.dispatched_ns, last.free_ns);
  parts.taking += std::max<int64_t>(exchange.done_ns - std::max(last.back_ns, exchange.ready_ns), 0);
  const int64_t from_wire = CoreWaits::take_from(wire_ns, no_core_ns);
  parts.not_running += from_wire + CoreWaits::take_from(experts_ns, no_core_ns - from_wire);
  parts.wire += wire_ns;
  parts.experts += experts_ns;
}

/// What a hiccup of the machine costs lies in a few steps, however many exchanges these have; what a rank costs comes again.
void LostTimeFinder::find_usual() {
  constexpr double kWorst = 0.1;  // of the time in steps
  const std::vector<StepInfo>& steps = input_.timeline.steps;
  for (RankLoss& loss : found_.ranks) {
    for (std::size_t cause = 0; cause < kNumLosses; ++cause) {
      std::vector<std::pair<int64_t, int64_t>> by_step;  // lost, length
      for (auto at = lost_in_step_.lower_bound({loss.rank, 0}); at != lost_in_step_.end() && at->first.first == loss.rank;
           ++at) {
        const StepInfo& step = steps[at->first.second];
        by_step.emplace_back(at->second[cause], step.end_ns - step.begin_ns);
      }
      std::sort(by_step.rbegin(), by_step.rend());
      auto left_ns = static_cast<int64_t>(kWorst * static_cast<double>(total_step_ns(input_.timeline)));
      for (const auto& [lost_ns, length_ns] : by_step) {
        if (left_ns <= 0) loss.usual_ns[cause] += lost_ns;
        left_ns -= length_ns;
      }
    }
  }
}

/// Outside exchanges nothing hides what the coordinator misses; while it waits for a worker, a core would be of no use to it.
void LostTimeFinder::charge_coordinator(std::size_t s) {
  const StepInfo& step = input_.timeline.steps[s];
  const int64_t stopped_ns = overlap(stops_of(0), step.begin_ns, step.end_ns) - stop_in_exchanges_[s];
  rank(0).ns[static_cast<std::size_t>(Loss::kStopped)] += std::max<int64_t>(stopped_ns, 0);
  const WaitParts& waits = found_.waits[s];
  const int64_t for_workers_ns = waits.experts + waits.wire + waits.not_running;
  const int64_t own_ns =
      step.end_ns - step.begin_ns - for_workers_ns - std::max<int64_t>(stopped_ns, 0) - stop_in_exchanges_[s] - held_up_[s];
  rank(0).ns[static_cast<std::size_t>(Loss::kNoCore)] += CoreWaits::take_from(core_waits_.in_step(0, step.step), own_ns);
}

}  // namespace

bool is_stop(const Slice& slice) { return slice.zone == Zone::kNotRunning && int64_t{slice.a} * 2000 < slice.duration_ns(); }

std::vector<IntervalSet> find_stops(const ReportInput& input) {
  std::vector<std::vector<Interval>> found(input.capture.ranks.size());
  for (const Slice& slice : input.timeline.slices) {
    if (!is_stop(slice)) continue;
    const int32_t rank = input.timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    found[static_cast<std::size_t>(rank)].push_back({slice.begin_ns, slice.end_ns});
  }
  std::vector<IntervalSet> stops;
  for (std::vector<Interval>& intervals : found) stops.push_back(make_interval_set(std::move(intervals)));
  return stops;
}

const char* loss_name(Loss loss) {
  constexpr const char* kNames[kNumLosses] = {"stopped", "no core", "link", "more rows", "slow", "order"};
  return kNames[static_cast<std::size_t>(loss)];
}

int64_t RankLoss::total() const { return std::accumulate(ns.begin(), ns.end(), int64_t{0}); }

void WaitParts::add(const WaitParts& other) {
  experts += other.experts;
  wire += other.wire;
  not_running += other.not_running;
  taking += other.taking;
}

LostTime find_lost_time(const ReportInput& input) { return LostTimeFinder(input).find(); }

}  // namespace ferry
