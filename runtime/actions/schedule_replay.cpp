#include "runtime/actions/schedule_replay.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <unordered_map>

#include "profiler/report/statistics.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

double since_begin_s(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Rows of prompts that steps computed for each request, by its number, and steps in which it decoded.
struct SeenRows {
  int64_t prompt = 0, decode = 0;
};
std::unordered_map<uint32_t, SeenRows> count_seen(const Timeline& timeline) {
  std::unordered_map<uint32_t, const RequestInfo*> requests;
  for (const RequestInfo& r : timeline.requests) requests[r.request] = &r;
  std::unordered_map<uint32_t, SeenRows> seen;
  for (const Slice& slice : timeline.slices) {
    if (slice.zone != Zone::kRequestStep && slice.zone != Zone::kRequestVerify) continue;
    const auto found = requests.find(slice.a);
    if (found == requests.end()) continue;
    const RequestInfo& r = *found->second;
    const bool is_prompt = r.first_scheduled_ns && (!r.first_token_ns || slice.end_ns <= *r.first_token_ns);
    if (is_prompt && slice.zone == Zone::kRequestStep)
      seen[slice.a].prompt += slice.b;
    else
      seen[slice.a].decode += 1;
  }
  return seen;
}

/// Drives the scheduler.
class Driver {
 public:
  Driver(const std::vector<ReplayedRequest>& requests, SchedulerOptions options, const StepClock& clock)
      : requests_(requests),
        clock_(clock),
        scheduler_(std::move(options)),
        runs_(requests.size()),
        arrival_(requests.size(), -1) {
    followers_.resize(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].follows >= 0)
        followers_[static_cast<std::size_t>(requests[i].follows)].push_back(i);
      else
        pending_.emplace(requests[i].arrival_s, i);
    }
  }

  std::optional<ScheduleResult> run();

 private:
  struct Run {
    double first_token_s = -1, last_token_s = -1;
  };

  void take_arrivals();
  void note_tokens(const StepPlan& plan);
  void take_ends();
  static Scheduler::TimePoint at(double s) {
    return Scheduler::TimePoint(std::chrono::duration_cast<Scheduler::TimePoint::duration>(std::chrono::duration<double>(s)));
  }

  const std::vector<ReplayedRequest>& requests_;
  const StepClock& clock_;
  Scheduler scheduler_;
  std::vector<Run> runs_;
  std::vector<double> arrival_;
  std::vector<std::vector<std::size_t>> followers_;
  std::multimap<double, std::size_t> pending_;  // by time
  std::vector<double> gaps_;
  std::size_t num_ended_ = 0;
  double now_ = 0;
  ScheduleResult result_;
};

void Driver::take_arrivals() {
  while (!pending_.empty() && pending_.begin()->first <= now_) {
    const auto [when, i] = *pending_.begin();
    pending_.erase(pending_.begin());
    const ReplayedRequest& r = requests_[i];
    Request request{
        .id = std::to_string(i), .owner = "", .prompt = std::vector<TokenId>(static_cast<std::size_t>(r.num_prompt), 0)};
    request.sampling.max_tokens = static_cast<int32_t>(r.num_generated);
    request.sampling.ignore_eos = true;
    validate_request(request, scheduler_.options());
    arrival_[i] = when;
    if (scheduler_.add(std::move(request), at(when)) == nullptr) throw_invalid("more requests wait than may");
  }
}

void Driver::note_tokens(const StepPlan& plan) {
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    const auto i = static_cast<std::size_t>(std::stoll(entry.sequence->request.id));
    Run& run = runs_[i];
    if (run.first_token_s < 0)
      run.first_token_s = now_;
    else
      gaps_.push_back(now_ - run.last_token_s);
    run.last_token_s = now_;
    ++result_.num_tokens;
  }
}

void Driver::take_ends() {
  for (const std::unique_ptr<Sequence>& sequence : scheduler_.take_finished()) {
    ++num_ended_;
    const auto i = static_cast<std::size_t>(std::stoll(sequence->request.id));
    for (const std::size_t next : followers_[i]) pending_.emplace(now_ + requests_[next].think_s, next);
  }
}

std::optional<ScheduleResult> Driver::run() {
  std::vector<TokenId> tokens;
  std::vector<int32_t> counts;
  while (num_ended_ < requests_.size()) {
    take_arrivals();
    const StepPlan& plan = scheduler_.plan(at(now_));
    if (plan.num_rows == 0) {
      if (pending_.empty()) return {};
      now_ = std::max(now_, pending_.begin()->first);
      continue;
    }
    if (++result_.num_steps > kMaxReplayedSteps) return {};
    const double seconds =
        clock_.seconds(static_cast<double>(plan.num_decode_tokens), static_cast<double>(plan.num_prefill_tokens));
    now_ += seconds;
    result_.steps_s += seconds;
    tokens.assign(static_cast<std::size_t>(plan.num_samples), 0);
    counts.assign(tokens.size(), 1);
    note_tokens(plan);
    scheduler_.commit(plan, {.tokens = tokens, .num_tokens = counts}, at(now_));
    scheduler_.note_step(plan, seconds);
    take_ends();
  }
  std::vector<double> first;
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i].is_measured) first.push_back(runs_[i].first_token_s - arrival_[i]);
  result_.end_s = now_;
  result_.ttft_p50_s = median(first);
  result_.gap_p50_s = percentile(gaps_, 0.5);
  result_.gap_p99_s = percentile(gaps_, 0.99);
  result_.num_preemptions = scheduler_.load().num_preemptions;
  return result_;
}

/// The most requests that ever were there at once, if nearly as many were all the time: then clients ask again when they are
/// answered, and are as many. Else 0.
int count_clients(const Timeline& timeline) {
  constexpr double kNearly = 0.75;
  std::vector<std::pair<int64_t, int>> changes;
  for (const RequestInfo& r : timeline.requests) {
    changes.emplace_back(r.arrival_ns.value_or(r.queued_ns.value_or(timeline.begin_ns)), 1);
    changes.emplace_back(r.finished_ns.value_or(timeline.end_ns), -1);
  }
  std::ranges::sort(changes);
  double present_ns = 0;
  int64_t since_ns = timeline.begin_ns;
  int present = 0, most = 0;
  for (const auto& [when_ns, change] : changes) {
    present_ns += present * static_cast<double>(when_ns - since_ns);
    since_ns = when_ns, present += change, most = std::max(most, present);
  }
  return present_ns >= kNearly * most * static_cast<double>(timeline.end_ns - timeline.begin_ns) ? most : 0;
}

/// How long after another request's end one may come and still be its client's next.
int64_t longest_way_ns(const Timeline& timeline) {
  if (timeline.steps.empty()) return 0;
  if (count_clients(timeline) > 0) return timeline.end_ns - timeline.begin_ns;
  const int64_t step_ns = (timeline.steps.back().end_ns - timeline.steps.front().begin_ns) / std::ssize(timeline.steps);
  return std::max<int64_t>(20'000'000, 2 * step_ns);
}

}  // namespace

std::vector<ReplayedRequest> find_replayed_requests(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  const std::unordered_map<uint32_t, SeenRows> seen = count_seen(timeline);
  const int64_t at_once_ns = longest_way_ns(timeline);
  std::vector<ReplayedRequest> list;
  std::multimap<int64_t, int32_t> ends;  // of requests that nobody follows yet
  for (const RequestInfo& r : timeline.requests) {
    const auto found = seen.find(r.request);
    if (found == seen.end()) continue;  // it had no rows
    const SeenRows rows = found->second;
    ReplayedRequest one;
    one.num_prompt = std::max<int64_t>(1, rows.prompt);
    one.num_generated = std::max<int64_t>(1, rows.decode + (rows.prompt > 0 ? 1 : 0));
    one.is_whole = r.first_scheduled_ns && r.first_token_ns && r.finished_ns;
    one.is_measured = r.first_token_ns && (r.arrival_ns || r.queued_ns);
    const int64_t arrival = r.arrival_ns.value_or(r.queued_ns.value_or(0));
    one.arrival_s = since_begin_s(arrival);
    const auto before = ends.lower_bound(arrival - at_once_ns);
    if (before != ends.end() && before->first <= arrival) {
      one.follows = before->second;
      one.think_s = since_begin_s(arrival - before->first);
      ends.erase(before);
    }
    if (r.finished_ns) ends.emplace(*r.finished_ns, static_cast<int32_t>(list.size()));
    list.push_back(one);
  }
  return list;
}

std::vector<ReplayedRequest> repeat_clients(const Timeline& timeline, const std::vector<ReplayedRequest>& seen) {
  constexpr int64_t kRounds = 8;  // of each client: that all end at once then counts little
  constexpr int64_t kMostTokens = 100'000;
  const int64_t num_clients = count_clients(timeline);
  std::vector<ReplayedRequest> whole;
  int64_t num_tokens = 0;
  for (const ReplayedRequest& request : seen) {
    if (!request.is_whole) continue;
    whole.push_back(request);
    num_tokens += request.num_generated;
  }
  if (num_clients == 0 || whole.empty()) return {};
  if (num_clients * kRounds * num_tokens > kMostTokens * std::ssize(whole)) return {};
  std::vector<ReplayedRequest> list;
  for (int64_t i = 0; i < num_clients * kRounds; ++i) {
    ReplayedRequest next = whole[static_cast<std::size_t>(i + i / num_clients) % whole.size()];
    next.arrival_s = next.think_s = 0;
    next.follows = i < num_clients ? -1 : static_cast<int32_t>(i - num_clients);
    list.push_back(next);
  }
  return list;
}

std::optional<ScheduleResult> replay_schedule(const std::vector<ReplayedRequest>& requests, SchedulerOptions options,
                                              const StepClock& clock) try {
  return Driver(requests, std::move(options), clock).run();
} catch (const Error&) {
  return {};
}

}  // namespace ferry
