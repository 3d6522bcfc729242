#include "runtime/server/generate_call.h"

#include <chrono>
#include <utility>

#include "runtime/grammar/grammar_engine.h"
#include "runtime/server/log/request_log.h"
#include "runtime/server/noted_requests.h"
#include "runtime/server/otlp/request_spans.h"
#include "runtime/server/status.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kDeadlineSlack{20};  // between gRPC's clock and ours
constexpr std::chrono::seconds kReaderPatience{60};      // for a caller to take what is left of an answer that has ended

/// A call's deadline on `clock`; none if it is further away than any request can last.
std::optional<Clock::Time> deadline_of(const grpc::CallbackServerContext& context, const Clock& clock) {
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  const auto now = std::chrono::system_clock::now();
  if (context.deadline() > now + kLongest) return std::nullopt;
  return clock.now() + std::chrono::duration_cast<std::chrono::nanoseconds>(context.deadline() - now);
}

grpc::Status exhausted(const std::string& message) { return {grpc::StatusCode::RESOURCE_EXHAUSTED, message}; }

/// Calls `work`. Returns what it threw, else OK.
template <class Work>
grpc::Status status_after(const Work& work) {
  try {
    work();
    return grpc::Status::OK;
  } catch (const std::exception&) {
    return current_status();
  }
}

}  // namespace

GenerateCall::GenerateCall(GenerateContext& shared, const char* route)
    : shared_(shared),
      open_calls_(shared.open_calls),
      route_(route),
      arrival_(shared.clock.now()),
      held_(shared.answers, shared.limits.answer_bytes) {}

GenerateCall::~GenerateCall() {
  if (num_message_bytes_ >= 0) open_calls_->leave(num_message_bytes_);
}

void GenerateCall::start(grpc::CallbackServerContext& context, std::unique_ptr<CallMessage> message, Caller caller) {
  self_ = shared_from_this();
  context_ = &context;
  message_ = std::move(message);
  caller_ = std::move(caller);
  deadline_ = deadline_of(context, shared_.clock);
  try {
    message_->check(shared_.limits);
  } catch (const std::exception&) {
    return end(current_status());
  }
  const int64_t num_bytes = message_->num_bytes();
  if (!open_calls_->enter(num_bytes)) return end(exhausted("the server holds as many open calls as it can; try later"));
  num_message_bytes_ = num_bytes;
  hand_to_pool();
}

void GenerateCall::hand_to_pool() {
  {
    const std::lock_guard lock(mutex_);
    is_preparing_ = true;
  }
  try {
    place_ = shared_.preparations.enter(caller_.owner, message_->request_id(), [this] { is_aborted_ = true; });
  } catch (const Error& e) {
    stop_preparing({}, to_status(e));
    return;
  }
  if (message_->has_grammar()) return run_on({.work = PromptWork::kText}, &GenerateCall::find_grammar);
  run_on(message_->step(shared_.limits), &GenerateCall::prepare);
}

/// Has a pool do the next step of preparing the call.
void GenerateCall::run_on(PromptStep step, void (GenerateCall::*work)()) {
  step.key = caller_.key;
  if (shared_.pools.try_run(step, [call = shared_from_this(), work] { (*call.*work)(); })) return;
  end_preparing({}, to_status(shared_.pools.refusal()));
}

/// On a pool's thread. A grammar that was compiled before needs no turn among those that compile.
void GenerateCall::find_grammar() {
  const grpc::Status failure = status_after([&] {
    check_in();
    grammar_ = shared_.engine.grammars().find(*message_->read_grammar());
  });
  if (!failure.ok()) return end_preparing({}, failure);
  if (grammar_ == nullptr) return run_on({.work = PromptWork::kGrammar}, &GenerateCall::compile_grammar);
  run_on(message_->step(shared_.limits), &GenerateCall::prepare);
}

/// On a pool's thread.
void GenerateCall::compile_grammar() {
  const grpc::Status failure = status_after([&] {
    check_in();
    grammar_ = shared_.engine.grammars().compile(*message_->read_grammar(), [this] { check_in(); });
  });
  if (!failure.ok()) return end_preparing({}, failure);
  run_on(message_->step(shared_.limits), &GenerateCall::prepare);
}

void GenerateCall::refuse(const grpc::Status& status) {
  self_ = shared_from_this();
  end(status);
}

/// On a pool's thread.
void GenerateCall::prepare() {
  std::vector<RequestNumber> numbers;
  const grpc::Status failure = status_after([&] {
    std::vector<Request> requests = make_requests();
    {
      const std::lock_guard lock(mutex_);
      num_open_ = requests.size();
      waiting_bytes_.assign(requests.size(), 0);
      begin_answer(requests);
    }
    numbers = submit(std::move(requests));
  });
  end_preparing(numbers, failure);
}

/// The call goes on as requests `numbers`, or ends with `failure`.
void GenerateCall::end_preparing(const std::vector<RequestNumber>& numbers, const grpc::Status& failure) {
  grammar_.reset();
  shared_.preparations.leave(place_);  // first: who hears that the request was refused may use the id again
  if (numbers.empty() && is_aborted_) tell_abort();
  const bool has_failed = stop_preparing(numbers, failure);
  // A call that ended while its requests were on the way in has missed the coordinator's abort.
  if (!has_failed && !is_cancelled_ && !is_aborted_) return;
  for (const RequestNumber number : numbers) shared_.engine.abort(number);
}

/// All or none of them; throws what the one that was refused did.
std::vector<RequestNumber> GenerateCall::submit(std::vector<Request> requests) {
  std::vector<RequestNumber> numbers;
  numbers.reserve(requests.size());
  NotedRequests noted(note_);
  try {
    for (std::size_t choice = 0; choice < requests.size(); ++choice) {
      Request& request = requests[choice];
      EventSink sink = [call = self_, choice](const GenerateEvent& event) { call->on_event(choice, event); };
      sink = noted.observe(request, std::move(sink));
      if (RequestSpans* const spans = shared_.engine.spans())
        sink = spans->observe(request, trace_context_of(*context_), std::move(sink));
      numbers.push_back(shared_.engine.submit(std::move(request), std::move(sink)));
    }
  } catch (...) {
    for (const RequestNumber number : numbers) shared_.engine.abort(number);
    throw;
  }
  return numbers;
}

/// The message is of no use any more: the call goes on as requests `numbers`, or ends with `failure`. True if one of the
/// requests has failed meanwhile.
bool GenerateCall::stop_preparing(std::vector<RequestNumber> numbers, const grpc::Status& failure) {
  const std::lock_guard lock(mutex_);
  is_preparing_ = false;
  message_.reset();
  numbers_ = std::move(numbers);
  if (numbers_.empty() && !status_) {
    status_ = failure;
    drops_answer_ = true;
  }
  advance();
  return failure_.has_value();
}

/// Ends the call as one is that the engine aborts. Its pictures are gone by then: who hears of it may send as many again.
void GenerateCall::tell_abort() {
  GenerateEvent event{.finish_reason = FinishReason::kAborted};
  event.request_id = message_->request_id();
  event.timings.total_ns = std::chrono::nanoseconds(shared_.clock.now() - arrival_).count();
  {
    const std::lock_guard lock(mutex_);
    num_open_ = 1;
  }
  on_event(0, event);
}

/// Throws why the call's prompt is of no use any more.
void GenerateCall::check_in() const {
  if (is_cancelled_ || is_aborted_) throw Error(ErrorCode::kCancelled, "the call was cancelled");
  if (const std::optional<Error> failure = shared_.engine.failure()) throw *failure;
  if (deadline_ && shared_.clock.now() >= *deadline_)
    throw Error(ErrorCode::kDeadlineExceeded, "the call's deadline passed while its prompt was made");
}

std::vector<Request> GenerateCall::make_requests() const {
  check_in();
  std::vector<Request> requests = message_->make_requests(
      shared_.engine,
      {.limits = shared_.limits, .check_in = [this] { check_in(); }, .deadline = deadline_, .clock = shared_.clock});
  bound_answer(requests, {.most_bytes = shared_.limits.answer_bytes,
                          .vocab_size = shared_.engine.model_info().vocab_size,
                          .form = message_->answer_form()});
  const auto call = requests.size() > 1 ? std::make_shared<CallRequests>() : nullptr;
  for (Request& request : requests) {
    request.call = call;
    request.id = message_->request_id();
    request.owner = request.account = caller_.owner;
    request.arrival = arrival_;
    request.deadline = deadline_;
  }
  return requests;
}

void GenerateCall::cancel() {
  is_cancelled_ = true;
  abort_requests();
  // gRPC cancels a call whose deadline passes, and its clock may be a little ahead of this one.
  const bool is_overdue = deadline_ && shared_.clock.now() + kDeadlineSlack >= *deadline_;
  end(is_overdue ? grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the call's deadline passed")
                 : grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"));
}

void GenerateCall::go_on(bool is_written) {
  {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    held_.give_back(std::exchange(writing_bytes_, 0));
    if (is_written) return advance();
    is_cancelled_ = true;
  }
  abort_requests();
  end(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
}

/// Returns the memory of a large answer to the system, on a thread that nobody waits for.
void GenerateCall::leave() {
  reader_alarm_.Cancel();
  std::shared_ptr<GenerateCall> last_use = std::move(self_);
  {
    const std::lock_guard lock(mutex_);
    if (!held_.was_large()) return;  // the lock goes before the call
  }
  try {
    static_cast<void>(shared_.pools.try_run({.key = caller_.key}, [call = std::move(last_use)]() mutable {
      call.reset();
      return_free_pages();
    }));
  } catch (const std::exception&) {  // no memory for that: a later answer's end returns the pages
  }
}

/// Takes the requests out of the batch that are in it.
void GenerateCall::abort_requests() {
  std::vector<RequestNumber> numbers;
  {
    const std::lock_guard lock(mutex_);
    if (status_) return;
    numbers = numbers_;
  }
  for (const RequestNumber number : numbers) shared_.engine.abort(number);
}

/// On the engine's thread, or on the one that prepared the call if it was aborted before.
void GenerateCall::on_event(std::size_t choice, const GenerateEvent& event) {
  const std::lock_guard lock(mutex_);
  if (status_) return;
  try {
    take_event(choice, event);
  } catch (const std::exception&) {  // such as std::bad_alloc: it is this call's matter alone
    drops_answer_ = true;
    end_badly(current_status());
  }
  if (event.finish_reason != FinishReason::kNone) end_choice(event);
  advance();
  if (status_ && !is_finished_) wait_for_reader();
}

/// Needs mutex_.
void GenerateCall::take_event(std::size_t choice, const GenerateEvent& event) {
  const bool is_told = event.finish_reason != FinishReason::kError && !drops_answer_;
  if (is_told) hold(choice, event_bytes(event));
  if (is_told) add_event(choice, event);
}

/// Needs mutex_.
void GenerateCall::hold(std::size_t choice, int64_t num_bytes) {
  held_.add(num_bytes);
  if (waiting_bytes_.size() <= choice) waiting_bytes_.resize(choice + 1);
  waiting_bytes_[choice] += num_bytes;
}

/// The call ends with its last request, and with the status of the first one that ended badly. Needs mutex_.
void GenerateCall::end_choice(const GenerateEvent& event) {
  const grpc::Status status = status_of(event);
  if (--num_open_ == 0) {
    status_ = failure_.value_or(status);
  } else if (!status.ok()) {
    end_badly(status);
  }
}

/// The call's other requests are of no use any more, and a pool ends them, since a sink may not. Needs mutex_.
void GenerateCall::end_badly(const grpc::Status& status) {
  if (failure_) return;
  failure_ = status;
  // Without a place in its queue, or memory for one, they come to their own ends.
  try {
    static_cast<void>(shared_.pools.try_run({.key = caller_.key}, [call = shared_from_this()] { call->abort_requests(); }));
  } catch (const std::bad_alloc&) {
  }
}

/// Ends the call with `status` unless it has one already.
void GenerateCall::end(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!status_) status_ = status;
  advance();
}

/// Starts the next write or, after the last one, ends the call; not while the message is in use. Needs mutex_.
void GenerateCall::advance() {
  if (is_writing_ || is_finished_ || is_preparing_) return;
  is_writing_ = !is_cancelled_ && !drops_answer_ && begin_write();
  if (is_writing_ || !status_) return;
  is_finished_ = true;
  log_end();
  finish(*status_);
}

/// Returns true if a message is being written now. Needs mutex_.
bool GenerateCall::begin_write() {
  std::optional<std::size_t> choice;
  try {
    choice = write_next();
  } catch (const std::exception&) {
    drops_answer_ = true;
    end_badly(current_status());
    if (num_open_ == 0) status_ = failure_;
  }
  if (choice && *choice < waiting_bytes_.size()) writing_bytes_ = std::exchange(waiting_bytes_[*choice], 0);
  return choice.has_value();
}

/// Needs mutex_.
void GenerateCall::log_end() {
  if (note_ == nullptr) return;
  shared_.log->add_made([&] {
    return EndedRequest{.time = std::chrono::system_clock::now(),
                        .port = "grpc",
                        .method = "",
                        .route = route_,
                        .status = static_cast<int>(status_->error_code()),
                        .key = caller_.key_name,
                        .figures = note_->figures(),
                        .total_s = std::chrono::duration<double>(shared_.clock.now() - arrival_).count()};
  });
}

/// Cancels the call if the rest of its answer is not taken in time. Needs mutex_.
void GenerateCall::wait_for_reader() {
  reader_alarm_.Set(std::chrono::system_clock::now() + kReaderPatience, [weak = weak_from_this()](bool is_time) {
    const std::shared_ptr<GenerateCall> call = weak.lock();
    if (call == nullptr || !is_time) return;
    const std::lock_guard lock(call->mutex_);
    if (!call->is_finished_) call->context_->TryCancel();
  });
}

}  // namespace ferry
