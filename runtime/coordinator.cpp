#include "runtime/coordinator.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/engine.h"
#include "runtime/model/detokenizer.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

int64_t elapsed_ns(Clock::time_point from, std::optional<Clock::time_point> to) {
  return to ? std::chrono::duration_cast<std::chrono::nanoseconds>(*to - from).count() : 0;
}

/// The open end of an accepted request: where its events go and how its tokens become text.
struct Stream {
  EventSink sink;
  std::optional<Detokenizer> detokenizer;  // absent without a tokenizer
};

struct Submission {
  Request request;
  Stream stream;
  Clock::time_point arrival;
};

}  // namespace

/// One thread owns engine, scheduler and streams; callers leave submissions and aborts under the lock and wake it.
class Coordinator::Impl {
 public:
  explicit Impl(Engine& engine) : engine_(engine), scheduler_(engine.scheduler_options()) {
    load_.max_running_requests = static_cast<int32_t>(engine.scheduler_options().max_running);
    load_.max_waiting_requests = static_cast<int32_t>(engine.scheduler_options().max_waiting);
    load_.kv_blocks_total = engine.scheduler_options().num_blocks;
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

  void submit(Request request, EventSink sink);
  bool abort(const std::string& request_id);
  void drain(std::chrono::milliseconds timeout);
  void fail(const std::string& reason);

  EngineLoad load() const {
    const std::scoped_lock lock(mutex_);
    EngineLoad load = load_;
    load.waiting_requests += static_cast<int32_t>(inbox_.size());
    return load;
  }
  const ModelInfo& model_info() const { return engine_.model_info(); }
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
  void step();
  void publish(const StepPlan& plan, std::span<const TokenId> sampled);
  void publish_finished();
  void update_load(const StepPlan& plan);
  void end_inbox(const GenerateEvent& event);
  void fail_all(const std::exception& cause);

  Engine& engine_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the engine's thread: work arrived
  std::condition_variable done_;  // drain: a request ended
  std::deque<Submission> inbox_;
  std::set<std::string> open_ids_;  // accepted, last event not yet begun
  int64_t num_open_ = 0;            // accepted, last event not yet told
  std::vector<std::string> aborts_;
  std::string lost_reason_;  // set by fail()
  bool draining_ = false;
  bool stop_ = false;
  std::optional<Error> refusal_;  // the failure, from the moment it happens
  std::optional<Error> failure_;  // the same, once every request has heard of it
  std::function<void()> on_failure_;
  EngineLoad load_;
  int64_t next_id_ = 0;

  // Of the engine's thread alone.
  Scheduler scheduler_;
  std::unordered_map<const Sequence*, Stream> streams_;
  std::unordered_map<std::string, Stream> unplanned_;  // queued, sequence not seen yet: by request id
  std::thread thread_;
};

void Coordinator::Impl::submit(Request request, EventSink sink) {
  validate_request(request, engine_.scheduler_options());
  if (!request.sampling.stop.empty()) engine_.require_tokenizer();
  Stream stream{std::move(sink), std::nullopt};
  if (engine_.tokenizer() != nullptr) {
    stream.detokenizer.emplace(*engine_.tokenizer(), request.sampling.stop, SpecialTokens::kSkip);  // refuses bad stop strings
  }
  const bool is_nameless = request.id.empty();
  const std::scoped_lock lock(mutex_);
  if (refusal_) throw *refusal_;
  if (draining_ || stop_) throw Error(ErrorCode::kUnavailable, "the server is shutting down and takes no more requests");
  const int64_t waiting = load_.waiting_requests + static_cast<int64_t>(inbox_.size());
  if (waiting >= load_.max_waiting_requests) {
    throw Error(ErrorCode::kResourceExhausted, "the queue is full: " + std::to_string(waiting) +
                                                   " requests wait; allowed: --max-waiting " +
                                                   std::to_string(load_.max_waiting_requests));
  }
  if (is_nameless) {
    do request.id = "request-" + std::to_string(next_id_++);
    while (open_ids_.contains(request.id));
  }
  if (!open_ids_.insert(request.id).second)
    throw_invalid("request_id '" + request.id + "' belongs to an open request; allowed: a new one, or none");
  ++num_open_;
  inbox_.push_back({std::move(request), std::move(stream), Clock::now()});
  wake_.notify_one();
}

bool Coordinator::Impl::abort(const std::string& request_id) {
  const std::scoped_lock lock(mutex_);
  if (!open_ids_.contains(request_id)) return false;
  aborts_.push_back(request_id);
  wake_.notify_one();
  return true;
}

void Coordinator::Impl::drain(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  if (done_.wait_for(lock, timeout, [&] { return num_open_ == 0; })) return;
  aborts_.assign(open_ids_.begin(), open_ids_.end());
  wake_.notify_one();
  done_.wait(lock, [&] { return num_open_ == 0; });
}

void Coordinator::Impl::fail(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  lost_reason_ = reason;
  wake_.notify_one();
}

void Coordinator::Impl::run() {
  try {
    while (take_submissions()) step();
    scheduler_.finish_all(FinishReason::kAborted, Clock::now());
    publish_finished();
    end_inbox({.finish_reason = FinishReason::kAborted});
  } catch (const std::exception& error) {  // not only Error: memory may run out
    fail_all(error);
  }
}

/// Moves what callers left to the scheduler; waits while there is nothing to do. False when it is time to leave.
bool Coordinator::Impl::take_submissions() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!lost_reason_.empty()) throw Error(ErrorCode::kUnavailable, lost_reason_);
    if (stop_) return false;
    const SchedulerLoad load = scheduler_.load();
    if (!inbox_.empty() || !aborts_.empty() || load.num_running + load.num_waiting > 0) break;
    if (wake_.wait_for(lock, Engine::kKeepAlivePeriod) == std::cv_status::no_timeout) continue;
    lock.unlock();
    engine_.keep_alive();
    lock.lock();
  }
  for (Submission& submission : inbox_) {
    unplanned_.emplace(submission.request.id, std::move(submission.stream));
    FERRY_CHECK(scheduler_.add(std::move(submission.request), submission.arrival) == Admission::kQueued);
  }
  load_.waiting_requests += static_cast<int32_t>(inbox_.size());
  inbox_.clear();
  for (const std::string& id : aborts_) scheduler_.abort(id);
  aborts_.clear();
  return true;
}

void Coordinator::Impl::step() {
  const StepPlan& plan = scheduler_.plan(Clock::now());
  if (plan.num_rows > 0) {
    const std::span<const TokenId> sampled = engine_.run_step(plan);
    scheduler_.commit(plan, sampled, Clock::now());
    publish(plan, sampled);
  }
  publish_finished();
  update_load(plan);
}

/// Sends every new token to its stream.
void Coordinator::Impl::publish(const StepPlan& plan, std::span<const TokenId> sampled) {
  std::size_t next = 0;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    const TokenId token = sampled[next++];
    Sequence& sequence = *entry.sequence;
    if (token == kNoToken) continue;
    Stream& stream =
        streams_.contains(&sequence)
            ? streams_.at(&sequence)
            : streams_.emplace(&sequence, std::move(unplanned_.extract(sequence.request.id).mapped())).first->second;
    GenerateEvent event{.token_ids = {token}};
    if (stream.detokenizer && !sequence.ends_with_stop_id) {
      event.text = stream.detokenizer->push(token);
      if (stream.detokenizer->stopped()) scheduler_.finish(sequence, FinishReason::kStop, Clock::now());
    }
    stream.sink(event);
  }
}

void Coordinator::Impl::publish_finished() {
  for (const std::unique_ptr<Sequence>& sequence : scheduler_.take_finished()) {
    auto known = streams_.extract(sequence.get());
    Stream stream = known ? std::move(known.mapped()) : std::move(unplanned_.extract(sequence->request.id).mapped());
    GenerateEvent event{.finish_reason = sequence->finish_reason,
                        .prompt_tokens = static_cast<int32_t>(sequence->num_prompt()),
                        .completion_tokens = static_cast<int32_t>(sequence->num_generated())};
    if (stream.detokenizer) event.text = stream.detokenizer->finish();
    event.timings = {.queue_ns = elapsed_ns(sequence->arrival, sequence->first_scheduled),
                     .first_token_ns = elapsed_ns(sequence->arrival, sequence->first_token),
                     .total_ns = elapsed_ns(sequence->arrival, sequence->finished)};
    if (sequence->finish_reason == FinishReason::kError) {
      event.error = Error(ErrorCode::kInternal,
                          "the model's logits are not finite; --check-weights tells whether the checkpoint is to blame");
    }
    {
      const std::scoped_lock lock(mutex_);  // who hears the last event may use the id again
      open_ids_.erase(sequence->request.id);
      std::erase(aborts_, sequence->request.id);
    }
    stream.sink(event);
    const std::scoped_lock lock(mutex_);
    --num_open_;
    done_.notify_all();
  }
}

void Coordinator::Impl::update_load(const StepPlan& plan) {
  const SchedulerLoad now = scheduler_.load();
  const double balance = balancedness(engine_.dispatcher().expert_load(), engine_.dispatcher().expert_map());
  const std::scoped_lock lock(mutex_);
  load_.running_requests = static_cast<int32_t>(now.num_running);
  load_.waiting_requests = static_cast<int32_t>(now.num_waiting);
  load_.kv_blocks_used = now.num_used_blocks;
  load_.steps += plan.num_rows > 0 ? 1 : 0;
  load_.prompt_tokens += plan.num_prefill_tokens;
  load_.generated_tokens += plan.num_samples;
  load_.balancedness = balance;
}

/// Ends what never reached the scheduler. Nothing can be submitted any more.
void Coordinator::Impl::end_inbox(const GenerateEvent& event) {
  std::deque<Submission> inbox;
  {
    const std::scoped_lock lock(mutex_);
    inbox.swap(inbox_);
  }
  for (Submission& submission : inbox) submission.stream.sink(event);
}

/// The engine cannot go on: every open request hears why.
void Coordinator::Impl::fail_all(const std::exception& cause) {
  const Error error(ErrorCode::kUnavailable, cause.what());
  engine_.abandon();
  {
    const std::scoped_lock lock(mutex_);
    refusal_ = error;
    if (on_failure_) on_failure_();
  }
  GenerateEvent event{.finish_reason = FinishReason::kError};
  event.error = error;
  for (auto& [sequence, stream] : streams_) stream.sink(event);
  for (auto& [id, stream] : unplanned_) stream.sink(event);
  end_inbox(event);
  const std::scoped_lock lock(mutex_);
  open_ids_.clear();
  num_open_ = 0;
  failure_ = error;
  done_.notify_all();
}

Coordinator::Coordinator(Engine& engine) : impl_(std::make_unique<Impl>(engine)) {}
Coordinator::~Coordinator() = default;
void Coordinator::submit(Request request, EventSink sink) { impl_->submit(std::move(request), std::move(sink)); }
bool Coordinator::abort(const std::string& request_id) { return impl_->abort(request_id); }
void Coordinator::drain(std::chrono::milliseconds timeout) { impl_->drain(timeout); }
void Coordinator::fail(const std::string& reason) { impl_->fail(reason); }
EngineLoad Coordinator::load() const { return impl_->load(); }
const ModelInfo& Coordinator::model_info() const { return impl_->model_info(); }
std::optional<Error> Coordinator::failure() const { return impl_->failure(); }
void Coordinator::set_on_failure(std::function<void()> on_failure) { impl_->set_on_failure(std::move(on_failure)); }

}  // namespace ferry
