#include "runtime/coordinator.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "profiler/archive/step_sink.h"
#include "profiler/run_account.h"
#include "profiler/span.h"
#include "runtime/base/check.h"
#include "runtime/base/out_of_memory.h"
#include "runtime/engine.h"
#include "runtime/engine_stats.h"
#include "runtime/open_requests.h"
#include "runtime/trace/request_trace.h"
#include "runtime/unit_contents.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kMediaSlice{100};  // of the tower between two steps
constexpr std::chrono::milliseconds kOrderTick{100};   // between two looks at whether a placement is still wanted

int64_t elapsed_ns(Clock::Time from, std::optional<Clock::Time> to) {
  return to ? std::chrono::duration_cast<std::chrono::nanoseconds>(*to - from).count() : 0;
}

StopRules stop_rules_of(const SamplingParams& params) {
  return {.min_tokens = params.min_tokens, .text = params.includes_stop ? StopRules::Text::kKept : StopRules::Text::kCut};
}

/// How many of the `num_new` tokens that a sequence got last are part of its text: a stop id is not, but for one of the
/// request's own that is to be included.
std::size_t num_text_tokens(const Sequence& sequence, std::size_t num_new) {
  const bool is_included = sequence.own_stop_id && sequence.request.sampling.includes_stop;
  return num_new - (sequence.ends_with_stop_id && !is_included ? 1 : 0);
}

/// What is known of the prompt once all of it is computed. To be told once.
std::vector<TokenLogprobs> take_prompt_logprobs(Sequence& sequence) {
  std::vector<TokenLogprobs> logprobs = std::exchange(sequence.sampled.prompt_logprobs, {});
  if (std::ssize(logprobs) + 1 != sequence.num_prompt()) logprobs.clear();
  return logprobs;
}

/// Locks `mutex`; a wait for it is in the trace.
std::unique_lock<std::mutex> lock_traced(std::mutex& mutex) {
  std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) {
    const Span span(Zone::kWaitLock);
    lock.lock();
  }
  return lock;
}

/// What is known of a step before it ends.
StepFacts facts_of(const StepPlan& plan, int64_t step, uint64_t begin) {
  const Phase phase = plan.num_prefill_tokens == 0  ? Phase::kDecode
                      : plan.num_decode_tokens == 0 ? Phase::kPrefill
                                                    : Phase::kMixed;
  StepFacts facts{.step = step,
                  .begin = begin,
                  .phase = phase,
                  .num_rows = plan.num_rows,
                  .num_sequences = static_cast<int64_t>(plan.entries.size())};
  for (const StepEntry& entry : plan.entries) facts.num_keys += entry.first_token;
  return facts;
}

/// The step as the trace's window for everything in it, from its plan to its last word to the callers.
void record_step(StepFacts& facts, Clock::Duration time) {
  facts.end = now_ticks();
  facts.seconds = std::chrono::duration<double>(time).count();
  record_span(Zone::kStep, facts.begin, facts.end, static_cast<uint32_t>(facts.num_rows),
              pack_plan(facts.phase, static_cast<uint32_t>(facts.num_sequences)));
}

}  // namespace

/// One thread owns engine and scheduler; callers leave requests and aborts in the table under the lock and wake it.
class Coordinator::Impl {
 public:
  Impl(Engine& engine, Clock& clock)
      : engine_(engine),
        clock_(clock),
        stats_(engine.scheduler_options()),
        scheduler_(engine.scheduler_options()),
        touched_(engine.dispatcher().expert_load()) {
    load_.max_running_requests = static_cast<int32_t>(engine.scheduler_options().max_running);
    load_.max_waiting_requests = static_cast<int32_t>(engine.scheduler_options().max_waiting);
    load_.max_drafts = static_cast<int32_t>(engine.scheduler_options().max_drafts);
    load_.kv_blocks_total = engine.scheduler_options().num_blocks;
    load_.kv_block_tokens = engine.scheduler_options().block_tokens;
    load_.has_prefix_cache = engine.scheduler_options().prefix_cache.is_on;
    thread_ = std::thread([this, context = check_context()] {
      check_context() = context;
      run();
    });
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  RequestNumber submit(Request request, EventSink sink);
  bool abort(RequestNumber number);
  bool abort(const std::string& owner, const std::string& request_id);
  void drain(std::chrono::milliseconds timeout);
  void fail(const std::string& reason);
  void between_steps(const std::function<void(Engine&)>& action);
  uint32_t set_placement(const GivenPlacement& given, uint32_t epoch, const std::function<bool()>& is_given_up);
  void set_on_capture(std::function<void(Capture)> on_capture, std::function<void(const std::string&)> on_give_up) {
    const std::scoped_lock lock(mutex_);
    on_capture_ = std::move(on_capture);
    on_give_up_ = std::move(on_give_up);
  }
  void set_step_sink(StepSink* sink) {
    const std::scoped_lock lock(mutex_);
    step_sink_ = sink;
  }

  EngineLoad load() const {
    const std::scoped_lock lock(mutex_);
    EngineLoad load = load_;
    const auto count = [&](RequestState state) { return static_cast<int32_t>(open_.count(state)); };
    load.running_requests =
        count(RequestState::kWaitingForMedia) + count(RequestState::kPrefilling) + count(RequestState::kDecoding);
    load.preempted_requests = count(RequestState::kPreempted);
    load.waiting_requests = static_cast<int32_t>(num_waiting());
    for (int state = 0; state < kNumRequestStates; ++state)
      load.requests[static_cast<std::size_t>(state)] = count(static_cast<RequestState>(state));
    return load;
  }
  std::vector<OpenRequestSight> oldest_requests(std::size_t most) const {
    const std::scoped_lock lock(mutex_);
    return open_.oldest(most, clock_.now());
  }
  EngineStats stats() const {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }
  WorkerReport workers() const { return engine_.worker_report(); }
  const ExpertRecord& experts() const { return engine_.expert_record(); }
  const ModelInfo& model_info() const { return engine_.model_info(); }
  const MediaIntake& require_media() const { return engine_.require_media(); }
  int64_t max_prompt_tokens() const { return sequence_capacity(engine_.scheduler_options()) - 1; }
  std::string allowed_prompt() const { return ferry::allowed_prompt(engine_.scheduler_options()); }
  std::optional<Error> failure() const {
    const std::scoped_lock lock(mutex_);
    return failure_;
  }
  void set_on_failure(std::function<void()> on_failure) {
    const std::scoped_lock lock(mutex_);
    on_failure_ = std::move(on_failure);
  }

 private:
  void run();
  bool take_submissions();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  bool has_news() const;
  void run_actions(std::unique_lock<std::mutex>& lock);
  void step();
  /// Requests that have no memory yet, or none any more. Needs mutex_.
  int64_t num_waiting() const { return open_.count(RequestState::kQueued) + open_.count(RequestState::kPreempted); }
  bool trace(bool ran_step);
  void publish(const StepPlan& plan);
  void publish_tokens(Sequence& sequence);
  void publish_finished();
  GenerateEvent last_event(Sequence& sequence, const OpenRequest& open);
  GenerateEvent whole_last_event(Sequence& sequence, OpenRequest& open);
  static void tell_last(const OpenRequest& open, const GenerateEvent& event);
  OpenRequest& updated_request(const Sequence& sequence);
  void update_load(const StepPlan& plan);
  void add_draft_time(const StepPlan& plan, Clock::Time begin, Clock::Time draft_begin);
  void drop_actions();
  void save_trace();
  void end_all(const GenerateEvent& event);
  void fail_all(const std::exception& cause);

  Engine& engine_;
  Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;                           // the engine's thread: work arrived
  std::condition_variable done_;                           // drain: a request ended
  OpenRequests open_;                                      // accepted, last event not yet told
  std::deque<std::packaged_task<void(Engine&)>> actions_;  // for between steps
  std::function<void(Capture)> on_capture_;
  StepSink* step_sink_ = nullptr;
  std::function<void(const std::string&)> on_give_up_;  // of captures
  std::string lost_reason_;                             // set by fail()
  bool draining_ = false;
  bool stop_ = false;
  std::optional<Error> refusal_;  // the failure, from the moment it happens
  std::optional<Error> failure_;  // the same, once every request has heard of it
  std::function<void()> on_failure_;
  EngineLoad load_;
  EngineStats stats_;

  // Of the engine's thread alone.
  Scheduler scheduler_;
  std::vector<std::unique_ptr<Sequence>> finishing_;  // kept until the step that they ended in is over
  RequestTrace request_trace_;
  RunAccount run_account_;
  TouchCounter touched_;
  std::thread thread_;
};

RequestNumber Coordinator::Impl::submit(Request request, EventSink sink) {
  validate_request(request, engine_.scheduler_options());
  if (!request.sampling.stop.empty()) engine_.require_tokenizer();
  OpenRequest open{.sink = std::move(sink)};
  if (engine_.tokenizer() != nullptr) {
    const SpecialTokens special = request.sampling.shows_special ? SpecialTokens::kKeep : SpecialTokens::kSkip;
    open.detokenizer.emplace(*engine_.tokenizer(), request.sampling.stop, special,  // refuses bad stop strings
                             stop_rules_of(request.sampling));
  }
  request.unit_contents = unit_contents(request, prefix_unit_tokens(engine_.scheduler_options()));
  const std::scoped_lock lock(mutex_);
  if (refusal_) throw *refusal_;
  if (draining_ || stop_) throw_draining();
  if (num_waiting() >= load_.max_waiting_requests) {
    stats_.add_rejected();
    throw Error(ErrorCode::kResourceExhausted, "the queue is full: " + std::to_string(num_waiting()) +
                                                   " requests wait; allowed: --max-waiting " +
                                                   std::to_string(load_.max_waiting_requests));
  }
  open.queued = clock_.now();
  open.arrival = std::min(request.arrival.value_or(open.queued), open.queued);
  open.request = std::move(request);
  const RequestNumber number = open_.add(std::move(open));
  wake_.notify_one();
  return number;
}

bool Coordinator::Impl::abort(RequestNumber number) {
  const std::scoped_lock lock(mutex_);
  if (!open_.want_abort(number)) return false;
  wake_.notify_one();
  return true;
}

bool Coordinator::Impl::abort(const std::string& owner, const std::string& request_id) {
  const std::scoped_lock lock(mutex_);
  if (!open_.want_abort(owner, request_id)) return false;
  wake_.notify_one();
  return true;
}

void Coordinator::Impl::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  if (clock_.wait_for(lock, done_, timeout, [&] { return open_.empty(); })) return;
  open_.want_all_aborted();
  wake_.notify_one();
  done_.wait(lock, [&] { return open_.empty(); });
}

void Coordinator::Impl::fail(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  lost_reason_ = reason;
  wake_.notify_one();
}

void Coordinator::Impl::between_steps(const std::function<void(Engine&)>& action) {
  std::packaged_task<void(Engine&)> task(action);
  std::future<void> done = task.get_future();
  {
    const std::scoped_lock lock(mutex_);
    if (refusal_) throw *refusal_;
    if (stop_) throw Error(ErrorCode::kUnavailable, "the engine is stopping");
    actions_.push_back(std::move(task));
  }
  wake_.notify_one();
  try {
    done.get();
  } catch (const std::future_error&) {
    throw Error(ErrorCode::kUnavailable, "the engine stopped before it could");
  }
}

uint32_t Coordinator::Impl::set_placement(const GivenPlacement& given, uint32_t epoch,
                                          const std::function<bool()>& is_given_up) {
  const std::shared_ptr<const ExpertPlacement> current = experts().placed().placement;
  const std::vector<LayerPlacement> layers = lay_out_given(given, current->num_layers(), current->num_experts());
  const auto order = std::make_shared<PlacementOrder>(is_given_up);
  const std::unique_ptr<PlacementOrder, void (*)(PlacementOrder*)> letting_go(order.get(), [](auto* it) { it->let_go(); });
  between_steps([&](Engine& engine) { engine.set_placement(layers, epoch, order); });
  while (true) {
    if (const std::optional<uint32_t> settled = order->wait_for(kOrderTick)) return *settled;
    const bool gives_up = is_given_up();
    between_steps([&](Engine& engine) {  // which throws where nobody would settle it any more
      if (gives_up) engine.give_up(*order);
    });
  }
}

void Coordinator::Impl::run() {
  recorder().register_thread("engine");
  pthread_setname_np(pthread_self(), "engine");
  const Progress::Scope computing(engine_.progress(), Progress::Activity::kComputing);
  try {
    while (take_submissions()) step();
    scheduler_.finish_all(FinishReason::kAborted, clock_.now());
    publish_finished();
    end_all({.finish_reason = FinishReason::kAborted});
    drop_actions();
  } catch (const std::exception& error) {  // not only Error: memory may run out
    fail_all(error);
  }
}

/// Moves what callers left to the scheduler; waits while there is nothing to do. False when it is time to leave.
bool Coordinator::Impl::take_submissions() {
  std::unique_lock lock = lock_traced(mutex_);
  while (true) {
    if (!lost_reason_.empty()) throw Error(ErrorCode::kUnavailable, lost_reason_);
    if (stop_) return false;
    run_actions(lock);
    const SchedulerLoad load = scheduler_.load();
    if (open_.has_news() || load.num_running + load.num_waiting > 0) break;
    wait_for_work(lock);
  }
  while (OpenRequest* open = open_.next_new()) {
    Sequence* sequence = scheduler_.add(std::move(open->request), open->arrival);
    FERRY_CHECK(sequence != nullptr);
    open_.place(*open, *sequence);
    request_trace_.queued(*sequence, open->queued);
  }
  open_.take_aborts([this](Sequence& sequence) { scheduler_.abort(sequence); });
  return true;
}

/// Nothing to compute: fetches what captures left on other ranks, or sleeps; says now and then that this rank is alive.
void Coordinator::Impl::wait_for_work(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  check_context().step = -1;
  const bool is_fetching = trace(false);
  lock.lock();
  if (is_fetching || has_news()) return;
  const Span span(Zone::kIdle);
  for (const auto end = clock_.now() + kKeepAlivePeriod; clock_.now() < end;) {
    const std::chrono::milliseconds tick = engine_.idle_tick();
    {
      const Progress::Scope idle(engine_.progress(), Progress::Activity::kIdle);
      if (clock_.wait_for(lock, wake_, tick, [this] { return has_news(); })) return;
    }
    lock.unlock();
    engine_.tend_workers();
    lock.lock();
  }
  lock.unlock();
  engine_.keep_alive();
  lock.lock();
}

/// Whether callers left something for the engine's thread. Needs mutex_.
bool Coordinator::Impl::has_news() const { return open_.has_news() || !actions_.empty() || stop_ || !lost_reason_.empty(); }

void Coordinator::Impl::run_actions(std::unique_lock<std::mutex>& lock) {
  while (!actions_.empty()) {
    std::packaged_task<void(Engine&)> action = std::move(actions_.front());
    actions_.pop_front();
    lock.unlock();
    action(engine_);
    lock.lock();
  }
}

/// Lets a capture take its turn; hands a finished one over, or says why there will be none. True while it wants more turns.
bool Coordinator::Impl::trace(bool ran_step) {
  const bool wants_more = engine_.trace().work(ran_step);
  if (const std::optional<std::string> why = engine_.trace().take_complaint()) {
    const std::scoped_lock lock(mutex_);
    if (on_give_up_) on_give_up_(*why);
  }
  if (std::optional<Capture> capture = engine_.trace().take()) {
    const std::scoped_lock lock(mutex_);
    if (on_capture_) on_capture_(std::move(*capture));
  }
  if (std::optional<KeptStep> kept = engine_.trace().take_kept_step()) {
    const std::scoped_lock lock(mutex_);
    if (step_sink_ != nullptr) step_sink_->add_kept_step(std::move(*kept));
  }
  if (const CountsByReason left_out = engine_.trace().take_left_out(); left_out != CountsByReason{}) {
    const std::scoped_lock lock(mutex_);
    if (step_sink_ != nullptr) step_sink_->add_left_out(left_out);
  }
  return wants_more;
}

void Coordinator::Impl::step() {
  const int64_t number = engine_.next_step();
  check_context().step = number;
  engine_.trace().begin_step(number);
  const uint64_t begin = now_ticks();
  const Clock::Time begin_time = clock_.now();
  const StepPlan* plan = nullptr;
  {
    const Span span(Zone::kSchedule);
    engine_.advance_prefix_file(scheduler_);
    plan = &scheduler_.plan(clock_.now());
  }
  const bool has_rows = plan->num_rows > 0;
  if (has_rows) {
    const Clock::Time run_start = clock_.now();
    const uint64_t run_begin = now_ticks();
    const StepChoices choices = engine_.run_step(*plan);
    const uint64_t run_end = now_ticks();
    scheduler_.commit(*plan, choices, clock_.now());
    publish(*plan);
    request_trace_.computed(*plan, run_begin, run_end);
    update_load(*plan);  // first: who hears that a request has ended finds it gone from the load
    publish_finished();
    const Clock::Time draft_start = clock_.now();
    engine_.draft(*plan, scheduler_);
    add_draft_time(*plan, run_start, draft_start);
    scheduler_.note_step(*plan, std::chrono::duration<double>(clock_.now() - run_start).count());
  } else {
    update_load(*plan);
    publish_finished();
  }
  finishing_.clear();  // the plan has no use for them any more
  const bool waits_for_media = scheduler_.next_for_media() != nullptr;
  if (!has_rows && !waits_for_media) engine_.wait_for_prefix_file(scheduler_);
  if (!has_rows && (waits_for_media || scheduler_.waits_for_file())) engine_.keep_alive();
  engine_.encode_media(scheduler_, [this, end = clock_.now() + kMediaSlice] {
    if (clock_.now() >= end) return true;
    const std::scoped_lock lock(mutex_);
    return has_news();
  });
  if (has_rows) {
    run_account_.record_own();
    run_account_.record_others();
    StepFacts facts = facts_of(*plan, number, begin);
    record_step(facts, clock_.now() - begin_time);
    engine_.trace().end_step(facts);
    const std::scoped_lock lock(mutex_);
    if (step_sink_ != nullptr) step_sink_->add_step(facts);
  }
  trace(has_rows);
}

/// The entry of a sequence, its state taken over: who hears of tokens finds the request counted as one that runs.
OpenRequest& Coordinator::Impl::updated_request(const Sequence& sequence) {
  const std::scoped_lock lock(mutex_);
  OpenRequest& open = open_.at(sequence.request.number);
  open_.take_state(open);
  return open;
}

/// Sends every new token to its stream. A request for whose tokens there is no memory ends, and no other.
void Coordinator::Impl::publish(const StepPlan& plan) {
  const Span span(Zone::kPublish, plan.num_samples);
  for (const StepEntry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    if (sequence.num_new == 0) continue;
    try {
      publish_tokens(sequence);
    } catch (const std::bad_alloc&) {
      sequence.sampled.failure = out_of_memory();
      scheduler_.finish(sequence, FinishReason::kError, clock_.now());
    }
  }
}

void Coordinator::Impl::publish_tokens(Sequence& sequence) {
  OpenRequest& open = updated_request(sequence);
  GenerateEvent event{.token_ids = {sequence.tokens.end() - sequence.num_new, sequence.tokens.end()}};
  if (sequence.num_new == sequence.num_generated()) event.cached_tokens = static_cast<int32_t>(sequence.num_cached);
  const std::size_t num_visible = num_text_tokens(sequence, event.token_ids.size());
  for (std::size_t i = 0; open.detokenizer && i < num_visible; ++i) {
    event.text += open.detokenizer->push(event.token_ids[i]);
    if (!open.detokenizer->stopped()) continue;
    const std::size_t num_dropped = event.token_ids.size() - i - 1;
    scheduler_.finish(sequence, FinishReason::kStop, clock_.now(), static_cast<int64_t>(num_dropped));
    event.token_ids.resize(i + 1);
    break;
  }
  event.logprobs = std::move(sequence.sampled.logprobs);
  if (!event.logprobs.empty()) event.logprobs.resize(event.token_ids.size());
  event.prompt_logprobs = take_prompt_logprobs(sequence);
  open.sink(event);
}

/// The last event, but for what its text still was.
GenerateEvent Coordinator::Impl::last_event(Sequence& sequence, const OpenRequest& open) {
  GenerateEvent event{.finish_reason = sequence.finish_reason,
                      .prompt_logprobs = take_prompt_logprobs(sequence),
                      .cached_tokens = static_cast<int32_t>(sequence.num_cached),
                      .stop_id = sequence.own_stop_id,
                      .request_id = sequence.request.id,
                      .prompt_tokens = static_cast<int32_t>(sequence.num_prompt()),
                      .completion_tokens = static_cast<int32_t>(sequence.num_generated())};
  if (open.detokenizer && open.detokenizer->stopped()) {
    event.stop = open.detokenizer->stop_string();
    event.stop_id.reset();  // whose text, being included, completed the string
  }
  event.timings = {.queue_ns = elapsed_ns(sequence.arrival, sequence.first_scheduled),
                   .first_token_ns = elapsed_ns(sequence.arrival, sequence.first_token),
                   .total_ns = elapsed_ns(sequence.arrival, sequence.finished)};
  if (sequence.finish_reason == FinishReason::kError) event.error = sequence.sampled.failure;
  return event;
}

/// With the text that was held back. Without memory for all that it says, it says that.
GenerateEvent Coordinator::Impl::whole_last_event(Sequence& sequence, OpenRequest& open) {
  try {
    GenerateEvent event = last_event(sequence, open);
    if (open.detokenizer) event.text = open.detokenizer->finish();
    return event;
  } catch (const std::bad_alloc&) {
    return {.finish_reason = FinishReason::kError};
  }
}

/// A sink that has no memory for the event gets one that only says so.
void Coordinator::Impl::tell_last(const OpenRequest& open, const GenerateEvent& event) {
  try {
    open.sink(event);
  } catch (const std::bad_alloc&) {
    try {
      open.sink({.finish_reason = FinishReason::kError});
    } catch (const std::bad_alloc&) {
    }
  }
}

void Coordinator::Impl::publish_finished() {
  finishing_ = scheduler_.take_finished();
  if (!finishing_.empty()) engine_.let_go_of_media(scheduler_);
  for (const std::unique_ptr<Sequence>& sequence : finishing_) {
    request_trace_.finished(*sequence);
    OpenRequest& open = updated_request(*sequence);
    GenerateEvent event = whole_last_event(*sequence, open);
    sequence->let_go_of_media();  // a client that gets the last event may send as many bytes again, and use the id
    {
      const std::scoped_lock lock(mutex_);
      stats_.add_finished(*sequence);  // first: who hears that it has ended finds it counted
      open_.close(sequence->request.number);
    }
    tell_last(open, event);
    const std::scoped_lock lock(mutex_);
    open_.erase(sequence->request.number);
    done_.notify_all();
  }
}

void Coordinator::Impl::add_draft_time(const StepPlan& plan, Clock::Time begin, Clock::Time draft_begin) {
  const auto seconds = [now = clock_.now()](Clock::Time since) { return std::chrono::duration<double>(now - since).count(); };
  int64_t num_wrong = 0;
  for (const StepEntry& entry : plan.entries) num_wrong += entry.num_drafts - entry.num_given_drafts();
  const std::unique_lock lock = lock_traced(mutex_);
  load_.draft_time.add(seconds(begin), seconds(draft_begin), plan.num_rows, num_wrong);
}

void Coordinator::Impl::update_load(const StepPlan& plan) {
  const SchedulerLoad now = scheduler_.load();
  const double balance = balancedness(engine_.dispatcher().expert_load());
  const TransportCount transport = engine_.dispatcher().transport_count();
  touched_.add_step(engine_.dispatcher().expert_load());
  const uint64_t time = now_ticks();
  record_value_at(time, Zone::kRunningRequests, now.num_running);
  record_value_at(time, Zone::kWaitingRequests, now.num_waiting);
  record_value_at(time, Zone::kUsedKvBlocks, now.num_used_blocks);
  recorder().memory().set(MemoryKind::kUsedKvCache, now.num_used_blocks * engine_.kv_block_bytes());
  const std::unique_lock lock = lock_traced(mutex_);
  open_.take_states();
  load_.accounts = static_cast<int32_t>(now.num_accounts);
  load_.prefill_limit = now.prefill_limit;
  load_.preemptions = now.num_preemptions;
  load_.lost_slots = now.num_lost_slots;
  load_.prefix_cache = now.prefix_cache;
  load_.kv_blocks_used = now.num_used_blocks;
  load_.steps += plan.num_rows > 0 ? 1 : 0;
  load_.prompt_tokens += plan.num_prefill_tokens;
  for (const StepEntry& entry : plan.entries) {
    load_.generated_tokens += entry.sequence->num_new;
    if (entry.is_decode && entry.samples) load_.drafts.add(entry.num_drafts, entry.num_given_drafts());
  }
  load_.balancedness = balance;
  stats_.add_step(plan, clock_.now());
  stats_.transport = transport;
  stats_.touched = touched_.count();
  stats_.used_swap_blocks = now.num_used_swap_blocks;
}

/// Tells all that are open. Nothing can be submitted any more.
void Coordinator::Impl::end_all(const GenerateEvent& event) {
  for (auto& [number, open] : open_) {
    {
      const std::scoped_lock lock(mutex_);
      stats_.add_lost(event.finish_reason);
    }
    GenerateEvent last = event;
    last.request_id = open.id;
    open.sink(last);
  }
}

/// Whoever waits for one hears that it will not happen.
void Coordinator::Impl::drop_actions() {
  const std::scoped_lock lock(mutex_);
  stop_ = true;
  actions_.clear();
}

/// Hands over what this rank recorded until now; a failure to do so must not hide the one that is being told.
void Coordinator::Impl::save_trace() {
  try {
    engine_.trace().abandon_workers();
    trace(false);
  } catch (const std::exception& error) {
    const std::scoped_lock lock(mutex_);
    if (on_give_up_) on_give_up_(error.what());
  }
}

/// The engine cannot go on: every open request hears why.
void Coordinator::Impl::fail_all(const std::exception& cause) {
  const Error error(ErrorCode::kUnavailable, cause.what());
  engine_.abandon();
  save_trace();
  {
    const std::scoped_lock lock(mutex_);
    refusal_ = error;
    if (on_failure_) on_failure_();
  }
  GenerateEvent event{.finish_reason = FinishReason::kError};
  event.error = error;
  end_all(event);
  drop_actions();
  const std::scoped_lock lock(mutex_);
  open_.clear();
  failure_ = error;
  done_.notify_all();
}

void Coordinator::between_steps(const std::function<void(Engine&)>& action) { impl_->between_steps(action); }
uint32_t Coordinator::set_placement(const GivenPlacement& given, uint32_t epoch, const std::function<bool()>& is_given_up) {
  return impl_->set_placement(given, epoch, is_given_up);
}
void Coordinator::set_on_capture(std::function<void(Capture)> on_capture, std::function<void(const std::string&)> on_give_up) {
  impl_->set_on_capture(std::move(on_capture), std::move(on_give_up));
}
Coordinator::Coordinator(Engine& engine, Clock& clock) : impl_(std::make_unique<Impl>(engine, clock)) {}
Coordinator::~Coordinator() = default;
RequestNumber Coordinator::submit(Request request, EventSink sink) {
  return impl_->submit(std::move(request), std::move(sink));
}
bool Coordinator::abort(RequestNumber number) { return impl_->abort(number); }
bool Coordinator::abort(const std::string& owner, const std::string& request_id) { return impl_->abort(owner, request_id); }
void Coordinator::drain(std::chrono::milliseconds timeout) { impl_->drain(timeout); }
void Coordinator::fail(const std::string& reason) { impl_->fail(reason); }
void Coordinator::set_step_sink(StepSink* sink) { impl_->set_step_sink(sink); }
EngineLoad Coordinator::load() const { return impl_->load(); }
std::vector<OpenRequestSight> Coordinator::oldest_requests(std::size_t most) const { return impl_->oldest_requests(most); }
EngineStats Coordinator::stats() const { return impl_->stats(); }
WorkerReport Coordinator::workers() const { return impl_->workers(); }
const ExpertRecord& Coordinator::experts() const { return impl_->experts(); }
int64_t Coordinator::max_prompt_tokens() const { return impl_->max_prompt_tokens(); }
std::string Coordinator::allowed_prompt() const { return impl_->allowed_prompt(); }
const ModelInfo& Coordinator::model_info() const { return impl_->model_info(); }
const MediaIntake& Coordinator::require_media() const { return impl_->require_media(); }
std::optional<Error> Coordinator::failure() const { return impl_->failure(); }
void Coordinator::set_on_failure(std::function<void()> on_failure) { impl_->set_on_failure(std::move(on_failure)); }

}  // namespace ferry
