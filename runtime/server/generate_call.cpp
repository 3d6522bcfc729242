#include "runtime/server/generate_call.h"

#include <chrono>
#include <utility>

#include "runtime/server/generate_request.h"
#include "runtime/server/generate_response.h"
#include "runtime/server/message_media.h"
#include "runtime/server/status.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kReaderPatience{60};  // for a caller to take what is left of an answer that has ended

/// A call's deadline on the steady clock; none if it is further away than any request can last.
std::optional<std::chrono::steady_clock::time_point> deadline_of(const grpc::CallbackServerContext& context) {
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  const auto now = std::chrono::system_clock::now();
  if (context.deadline() > now + kLongest) return std::nullopt;
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(context.deadline() - now);
}

grpc::Status exhausted(const std::string& message) { return {grpc::StatusCode::RESOURCE_EXHAUSTED, message}; }

}  // namespace

bool OpenCalls::enter(int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (num_calls_ >= max_calls_ || num_bytes > max_bytes_ - num_bytes_) return false;
  ++num_calls_;
  num_bytes_ += num_bytes;
  return true;
}

void OpenCalls::leave(int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  --num_calls_;
  num_bytes_ -= num_bytes;
}

GenerateCall::~GenerateCall() {
  if (num_message_bytes_ >= 0) open_calls_->leave(num_message_bytes_);
}

void GenerateCall::start(grpc::CallbackServerContext& context, const v1::GenerateRequest& message, std::string owner) {
  self_ = shared_from_this();
  context_ = &context;
  arrival_ = std::chrono::steady_clock::now();
  try {
    check_bounds(message, shared_.limits);
  } catch (const Error& e) {
    return end(to_status(e));
  }
  const auto num_bytes = static_cast<int64_t>(message.ByteSizeLong());
  if (!open_calls_->enter(num_bytes)) return end(exhausted("the server holds as many open calls as it can; try later"));
  num_message_bytes_ = num_bytes;
  hand_to_pool(context, message, std::move(owner));
}

void GenerateCall::hand_to_pool(const grpc::CallbackServerContext& context, const v1::GenerateRequest& message,
                                std::string owner) {
  {
    const std::lock_guard lock(mutex_);
    is_preparing_ = true;
  }
  try {
    place_ = shared_.preparations.enter(owner, message.request_id(), [this] { is_aborted_ = true; });
  } catch (const Error& e) {
    return stop_preparing(std::nullopt, to_status(e));
  }
  TaskPool& pool = has_media(message) ? shared_.media_readers : shared_.tokenizers;
  const bool is_taken =
      pool.try_run([call = self_, &context, &message, owner = std::move(owner)] { call->prepare(context, message, owner); });
  if (is_taken) return;
  shared_.preparations.leave(place_);
  stop_preparing(std::nullopt, exhausted("as many prompts as may wait to be tokenized do already; try later"));
}

void GenerateCall::refuse(const grpc::Status& status) {
  self_ = shared_from_this();
  end(status);
}

/// On a tokenizer's thread.
void GenerateCall::prepare(const grpc::CallbackServerContext& context, const v1::GenerateRequest& message,
                           const std::string& owner) {
  std::optional<RequestNumber> number;
  grpc::Status failure;
  try {
    Request request = make_request(context, message);
    request.owner = request.account = owner;
    number = shared_.engine.submit(std::move(request), [call = self_](const GenerateEvent& event) { call->on_event(event); });
  } catch (const Error& e) {
    failure = to_status(e);
  } catch (const std::exception& e) {  // such as std::bad_alloc
    failure = exhausted(one_line(e.what()));
  }
  shared_.preparations.leave(place_);  // first: who hears that the request was refused may use the id again
  if (!number && is_aborted_) tell_abort(message.request_id());
  stop_preparing(number, failure);
  // A call that was cancelled or aborted while its request was on the way in has missed the coordinator's abort.
  if (number && (is_cancelled_ || is_aborted_)) shared_.engine.abort(*number);
}

/// The message is of no use any more: the call goes on as request `number`, or ends with `failure`.
void GenerateCall::stop_preparing(std::optional<RequestNumber> number, const grpc::Status& failure) {
  const std::lock_guard lock(mutex_);
  is_preparing_ = false;
  number_ = number;
  if (!number && !status_) status_ = failure;
  advance();
}

/// Ends the call as one is that the engine aborts. Its pictures are gone by then: who hears of it may send as many again.
void GenerateCall::tell_abort(const std::string& request_id) {
  GenerateEvent event{.finish_reason = FinishReason::kAborted};
  event.request_id = request_id;
  event.timings.total_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - arrival_).count();
  on_event(event);
}

Request GenerateCall::make_request(const grpc::CallbackServerContext& context, const v1::GenerateRequest& message) const {
  Request request;
  request.deadline = deadline_of(context);
  const auto check_in = [&] {
    if (is_cancelled_ || is_aborted_) throw Error(ErrorCode::kCancelled, "the call was cancelled");
    if (const std::optional<Error> failure = shared_.engine.failure()) throw *failure;
    if (request.deadline && std::chrono::steady_clock::now() >= *request.deadline)
      throw Error(ErrorCode::kDeadlineExceeded, "the call's deadline passed while its prompt was made");
  };
  check_in();
  request.arrival = arrival_;
  request.id = message.request_id();
  MediaPrompt prompt =
      prompt_of(shared_.engine, message, {.limits = shared_.limits, .check_in = check_in, .deadline = request.deadline});
  request.prompt = std::move(prompt.ids);
  request.media = std::move(prompt.media);
  request.sampling = sampling_of(message.sampling());
  request.cache_salt = message.cache_salt();
  request.priority = message.priority();
  return request;
}

void GenerateCall::OnCancel() {
  is_cancelled_ = true;
  abort_request();
  end(grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"));
}

void GenerateCall::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    if (ok) return advance();
    waiting_.reset();
    is_cancelled_ = true;
  }
  abort_request();
  end(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
}

void GenerateCall::OnDone() {
  reader_alarm_.Cancel();
  const auto last_use = std::move(self_);
}

/// Takes the request out of the batch if it is in one.
void GenerateCall::abort_request() {
  RequestNumber number{};
  {
    const std::lock_guard lock(mutex_);
    if (status_ || !number_) return;
    number = *number_;
  }
  shared_.engine.abort(number);
}

/// On the engine's thread, or on the one that prepared the request if it was aborted before.
void GenerateCall::on_event(const GenerateEvent& event) {
  const std::lock_guard lock(mutex_);
  if (status_) return;
  if (event.finish_reason != FinishReason::kError) {
    if (waiting_) {
      append(*waiting_, to_response(event));
    } else {
      waiting_ = to_response(event);
    }
  }
  if (event.finish_reason != FinishReason::kNone) status_ = status_of(event);
  advance();
  if (status_ && !is_finished_) wait_for_reader();
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
  if (is_cancelled_) waiting_.reset();
  if (waiting_) {
    is_writing_ = true;
    writing_ = std::move(*waiting_);
    waiting_.reset();
    StartWrite(&writing_);
  } else if (status_) {
    is_finished_ = true;
    Finish(*status_);
  }
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
