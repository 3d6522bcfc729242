#include "runtime/trace/step_sampling.h"

#include <algorithm>
#include <span>
#include <utility>

#include "profiler/capture_window.h"
#include "profiler/recorder.h"
#include "runtime/base/error.h"
#include "runtime/trace/rank_parts.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kIdleLook{5};

int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Leaves out what is of steps behind `last`.
void drop_steps_behind(int64_t last, RankCapture& capture) {
  for (ThreadCapture& thread : capture.threads)
    std::erase_if(thread.records, [last](const SpanRecord& r) { return r.step != kNoStep && r.step > last; });
}

/// A rank that was stopped meanwhile says so itself.
bool has_stopped_rank(const Capture& capture) {
  for (const RankCapture& rank : capture.ranks) {
    for (const ThreadCapture& thread : rank.threads) {
      if (std::ranges::any_of(thread.records, [](const SpanRecord& r) { return r.zone == Zone::kNotRunning; })) return true;
    }
  }
  return false;
}

/// The kept steps by the coordinator's own spans; absent if some are not in them any more.
std::optional<CaptureWindow> window_of(const RankCapture& own, int64_t first, int64_t last) {
  std::optional<CaptureWindow> window;
  for (const ThreadCapture& thread : own.threads) {
    for (const SpanRecord& record : thread.records) {
      if (record.zone != Zone::kStep || record.step < first || record.step > last) continue;
      if (!window) window = {.first_step = record.step, .begin_ticks = UINT64_MAX};
      window->first_step = std::min(window->first_step, record.step);
      window->last_step = std::max(window->last_step, record.step);
      window->begin_ticks = std::min(window->begin_ticks, record.begin);
      window->end_ticks = std::max(window->end_ticks, record.end);
    }
  }
  if (!window || window->first_step != first || window->last_step != last) return std::nullopt;
  window->begin_ns = own.ticks.to_ns(window->begin_ticks);
  window->end_ns = own.ticks.to_ns(window->end_ticks);
  return window;
}

/// Whether every rank's rings still held what it did at `begin_ns` of the coordinator's clock.
bool reaches_back(const Capture& capture, int64_t begin_ns) {
  return std::ranges::all_of(capture.ranks, [begin_ns](const RankCapture& rank) {
    return rank.threads.empty() || rank.alignment.to_coordinator_ns(rank.ticks.to_ns(rank.begin)) <= begin_ns;
  });
}

}  // namespace

StepSampling::StepSampling(int64_t every, LinkHub* hub, Workers workers, TokenDispatcher& dispatcher, const CaptureInfo& info,
                           int32_t num_threads, std::chrono::milliseconds timeout)
    : every_(every),
      hub_(hub),
      workers_(std::move(workers)),
      dispatcher_(dispatcher),
      info_(info),
      num_threads_(num_threads),
      timeout_(timeout) {}

StepSampling::~StepSampling() { recorder().set_step_level(TraceLevel::kOff); }

void StepSampling::begin_step(int64_t step) {
  if (step % every_ != 0 || step == detailed_step_) return;
  detailed_step_ = step;
  tokens_before_ = tokens_of(dispatcher_.expert_load());
  recorder().set_step_level(TraceLevel::kOperators);
}

void StepSampling::end_step(const StepFacts& facts, const LoadMarks& marks) {
  marks_.note(facts.step, facts.begin);
  std::optional<KeptFor> why = judge_.judge(facts, wall_clock_ns() / 1'000'000'000);
  if (facts.step == detailed_step_) {
    recorder().set_step_level(TraceLevel::kOff);
    if (!why) why = KeptFor::kSample;
  }
  if (std::exchange(has_change_, false)) why = KeptFor::kWorkerChange;
  if (!why) return;
  if (wanted_) {
    const bool goes_first = is_anomaly(*why) && !is_anomaly(wanted_->why);  // what stands out
    leave_out(goes_first ? wanted_->why : *why);
    if (!goes_first) return;
  }
  want(*why, facts, marks);
}

void StepSampling::want(KeptFor why, const StepFacts& facts, const LoadMarks& marks) {
  Wanted wanted{.why = why, .facts = facts, .first = facts.step, .tokens = {}, .epoch_ns = wall_clock_ns()};
  if (facts.step == detailed_step_ && !is_anomaly(why)) {
    wanted.tokens = tokens_since(tokens_before_, dispatcher_.expert_load());
  } else {
    wanted.first = first_marked(facts.step, marks, wanted.tokens);
  }
  wanted_ = std::move(wanted);
}

/// The first of up to kStepsBefore steps before `step` right before which a mark tells what experts had been given, and what
/// they were given since. If there is none, the step alone, without.
int64_t StepSampling::first_marked(int64_t step, const LoadMarks& marks, std::vector<std::vector<int64_t>>& tokens) const {
  for (int64_t first = std::max<int64_t>(step - kStepsBefore, 0); first <= step; ++first) {
    const LoadMarks::Mark mark = marks.first_from(first == 0 ? 0 : marks_.begin_of(first - 1));
    if (mark.ticks > marks_.begin_of(first)) continue;
    tokens = tokens_of(dispatcher_.expert_load());
    auto then = mark.tokens.begin();
    for (std::vector<int64_t>& layer : tokens) {
      for (int64_t& count : layer) count -= *then++;
    }
    return first;
  }
  return step;
}

bool StepSampling::work(bool ran_step, const std::deque<WorkerChangeFacts>& changes) {
  if (under_way_) {
    if (ran_step) ++steps_since_;
    const bool fails_together = hub_ != nullptr && hub_->fails_together();
    const Deadline now = std::chrono::steady_clock::now();
    if (hub_ != nullptr && !fails_together) look(hub_->now() + (ran_step ? std::chrono::milliseconds(0) : kIdleLook));
    if (fails_together && (steps_since_ > 0 || !ran_step)) settle();
    if (has_answers() || now > begun_ + timeout_) finish(changes);
  }
  if (!under_way_ && wanted_) begin();
  return under_way_.has_value();
}

void StepSampling::begin() {
  under_way_ = std::exchange(wanted_, std::nullopt);
  begun_ = std::chrono::steady_clock::now();
  steps_since_ = 0;
  if (hub_ == nullptr) return;
  const std::vector<Link*> links = workers_();
  for (std::size_t w = asks_.size(); w < links.size(); ++w) asks_.push_back({.rank = Rank{static_cast<int32_t>(w) + 1}});
  for (std::size_t w = 0; w < asks_.size(); ++w) ask(asks_[w], w < links.size() ? links[w] : nullptr);
}

void StepSampling::ask(Ask& ask, Link* link) {
  ask.bytes.clear();
  ask.is_of_this = false;
  if (ask.receive) {
    ask.complaint = "has not yet answered for an earlier step";
    return;
  }
  ask.complaint = link == nullptr ? "not there" : "";
  if (link == nullptr) return;
  ask.link = link;
  ask.command = {.op = TraceCommand::Op::kTakeSteps, .number = ++num_commands_, .offset = under_way_->first};
  ask.command.header.map_epoch = dispatcher_.placement().epoch();
  ask.room.resize(sizeof(TraceReply) + static_cast<std::size_t>(kTracePieceBytes));
  try {
    ask.receive = link->irecv(ask.room, kTraceReplyTag, Fit::kUpTo);
    ask.send = link->isend(std::as_bytes(std::span(&ask.command, 1)), kRequestTag);
    ask.is_of_this = true;
  } catch (const Error&) {
    if (hub_->fails_together()) throw;
    ask.receive.reset();
    ask.complaint = "lost";
  }
}

bool StepSampling::is_pending() const {
  return std::ranges::any_of(asks_, [](const Ask& ask) { return ask.receive != nullptr; });
}

bool StepSampling::has_answers() const {
  return std::ranges::none_of(asks_, [](const Ask& ask) { return ask.is_of_this && ask.receive != nullptr; });
}

/// Takes what has come, and waits until `deadline` for the first that does.
void StepSampling::look(Deadline deadline) {
  while (is_pending()) {
    std::vector<PendingOp*> ops;
    std::vector<Ask*> asks;
    for (Ask& ask : asks_) {
      if (!ask.receive) continue;
      ops.push_back(ask.receive.get());
      asks.push_back(&ask);
    }
    std::size_t which = 0;
    try {
      which = hub_->wait_any(ops, deadline);
    } catch (const Error&) {  // nothing has come
      return;
    }
    take_answer(*asks[which], hub_->now() + timeout_);
    deadline = hub_->now();
  }
}

void StepSampling::settle() {
  for (Ask& ask : asks_) {
    if (ask.receive) take_answer(ask, hub_->now() + timeout_);
  }
}

void StepSampling::take_answer(Ask& ask, Deadline deadline) {
  try {
    const std::size_t num_bytes = ask.link->wait(*ask.receive, deadline);
    ask.link->wait(*ask.send, deadline);
    const TraceReply reply = parse_trace_reply(std::span(ask.room).first(num_bytes), ask.command, ask.rank);
    ask.boot_id = reply.boot_id;
    ask.complaint = reply.complaint;
    const auto bytes = std::span(ask.room).subspan(sizeof reply, static_cast<std::size_t>(reply.num_bytes));
    if (ask.is_of_this) ask.bytes.assign(bytes.begin(), bytes.end());
  } catch (const Error& error) {
    if (hub_->fails_together()) throw;
    ask.link->fail(error.what());
    ask.complaint = "lost";
  }
  ask.receive.reset();
  ask.send.reset();
}

void StepSampling::finish(const std::deque<WorkerChangeFacts>& changes) {
  const Wanted wanted = *std::exchange(under_way_, std::nullopt);
  Capture capture = collect(wanted);
  const std::optional<CaptureWindow> window = window_of(capture.ranks.front(), wanted.first, wanted.facts.step);
  if (!window || !reaches_back(capture, window->begin_ns)) return leave_out(wanted.why);  // other spans have taken its place
  cut_to(*window, capture);
  describe(wanted, capture, changes);
  const bool is_stopped = wanted.why == KeptFor::kLong && has_stopped_rank(capture);
  kept_ = {.why = is_stopped ? KeptFor::kStopped : wanted.why, .facts = wanted.facts, .capture = std::move(capture)};
}

/// All ranks' parts, of these steps and perhaps more.
Capture StepSampling::collect(const Wanted& wanted) const {
  Capture capture{.info = info_, .ranks = {}, .routing = {}};
  RankCapture own = recorder().snapshot_since(marks_.begin_of(wanted.first));
  own.rank = 0;
  own.num_threads = num_threads_;
  keep_steps_from(wanted.first, own);
  capture.ranks.push_back(std::move(own));
  for (const Ask& ask : asks_) {
    const RankCapture& first = capture.ranks.front();
    const std::string complaint = ask.receive ? "has not answered" : ask.complaint;
    RankCapture part;
    try {
      part = complaint.empty() ? place_rank(first, ask.rank.value, ask.bytes, ask.boot_id, {})
                               : absent_rank(first, ask.rank.value, ask.boot_id, complaint);
    } catch (const Error& error) {  // the other ranks' parts are worth having
      part = absent_rank(first, ask.rank.value, ask.boot_id, error.what());
    }
    capture.ranks.push_back(std::move(part));
  }
  for (RankCapture& rank : capture.ranks) drop_steps_behind(wanted.facts.step, rank);
  return capture;
}

void StepSampling::describe(const Wanted& wanted, Capture& capture, const std::deque<WorkerChangeFacts>& changes) const {
  const RankCapture& own = capture.ranks.front();
  CaptureInfo& info = capture.info;
  info.level =
      wanted.facts.step == detailed_step_ && wanted.first == wanted.facts.step ? TraceLevel::kOperators : TraceLevel::kSteps;
  info.start_epoch_ns = wanted.epoch_ns - (own.ticks.to_ns(wanted.facts.end) - own.ticks.to_ns(own.begin));
  if (hub_ != nullptr) info.placement = holders_of(dispatcher_.placement());
  info.expert_rank = first_ranks_of(dispatcher_.placement());
  const ExpertLoad& load = dispatcher_.expert_load();
  const std::vector<int64_t> none(info.expert_rank.size());
  info.expert_tokens = wanted.tokens;
  if (info.expert_tokens.empty()) info.expert_tokens.assign(static_cast<std::size_t>(load.num_layers()), none);
  const int32_t last_rank = std::ranges::max(dispatcher_.placement().ranks(), {}, &Rank::value).value;
  while (std::ssize(capture.ranks) <= last_rank)
    capture.ranks.push_back(absent_rank(own, static_cast<int32_t>(capture.ranks.size()), "", "came meanwhile"));
  info.world_size = static_cast<int32_t>(capture.ranks.size());
  for (const WorkerChangeFacts& change : changes) {
    if (change.ticks >= own.begin && change.ticks <= own.end) info.worker_changes.push_back(change);
  }
}

void StepSampling::give_up() {
  for (const std::optional<Wanted>* step : {&under_way_, &wanted_}) {
    if (*step) leave_out((*step)->why);
  }
  under_way_.reset();
  wanted_.reset();
}

void StepSampling::drop() {
  asks_.clear();
  give_up();
}

}  // namespace ferry
