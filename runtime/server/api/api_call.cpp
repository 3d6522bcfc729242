#include "runtime/server/api/api_call.h"

#include "runtime/base/random_id.h"
#include "runtime/server/api/answer_head.h"
#include "runtime/server/api/output_constraint.h"
#include "runtime/server/noted_requests.h"
#include "runtime/server/otlp/request_spans.h"

namespace ferry::api {

ApiCall::ApiCall(ApiContext& context, std::string key, HttpReply reply, const ErrorForm& errors)
    : context_(context),
      key_(std::move(key)),
      owner_("http " + random_id()),
      errors_(errors),
      reply_(std::move(reply)),
      held_(std::make_shared<HeldAnswer>(context.answers, context.settings.limits.answer_bytes)) {
  context_.calls.enter();
}

/// Returns the memory of a large answer to the system, on a thread that nobody waits for.
ApiCall::~ApiCall() {
  if (answer_ != nullptr && held_->was_large()) {
    answer_.reset();
    try {
      static_cast<void>(context_.finishers.try_run(return_free_pages));
    } catch (const std::exception&) {  // no memory for that: a later answer's end returns the pages
    }
  }
  context_.calls.leave();
}

void ApiCall::start(ApiContext& context, HttpRequest request, HttpReply reply, const ReadTask& read, const ErrorForm& errors) {
  std::make_shared<ApiCall>(context, key_of(request), std::move(reply), errors)->begin(std::move(request), read);
}

void ApiCall::begin(HttpRequest request, const ReadTask& read) {
  note_ = request.note;
  const std::weak_ptr<ApiCall> weak = weak_from_this();
  reply_->set_on_closed([weak, held = held_](HttpEnd end) {
    if (const auto call = weak.lock(); call != nullptr && end != HttpEnd::kAnswered) call->on_client_gone();
  });
  try {
    place_ = context_.preparations.enter(owner_, "", [this] { is_aborted_ = true; });
  } catch (const Error& error) {
    return fail(ApiError(error));
  }
  run_on({}, [call = shared_from_this(), request = std::move(request), read] { call->read_request(request, read); });
}

void ApiCall::run_on(PromptStep step, std::function<void()> work) {
  step.key = key_;
  if (context_.pools.try_run(step, std::move(work))) return;
  fail(ApiError(context_.pools.refusal()));
  leave_preparations();
}

/// On a tokenizer's thread.
void ApiCall::read_request(const HttpRequest& request, const ReadTask& read) {
  std::shared_ptr<ApiTask> task;
  try {
    check_in();
    task = read(request);
    caller_ = parse_trace_context(request.header("traceparent").value_or(""), request.header("tracestate").value_or(""));
    headers_ = answer_headers(task->generation());
    if (task->generation().streams) {
      const std::scoped_lock lock(mutex_);
      stream_ = reply_->stream({.headers = headers_, .keep_alive_s = context_.settings.keep_alive_s});
    }
  } catch (const std::exception&) {
    fail(current_error());
    return leave_preparations();
  }
  if (task->generation().constraint) return prepare_grammar(task);
  PromptStep step = task->step(context_.settings.limits);
  if (step.work == PromptWork::kText) return prepare(*task);
  run_on(std::move(step), [call = shared_from_this(), task] { call->prepare(*task); });
}

/// On a thread for text. A grammar that was compiled before needs no turn among those that compile.
void ApiCall::prepare_grammar(const std::shared_ptr<ApiTask>& task) {
  auto grammar = context_.grammars.find(task->generation().constraint->spec);
  if (grammar == nullptr)
    return run_on({.work = PromptWork::kGrammar}, [call = shared_from_this(), task] { call->compile_grammar(task); });
  prepare_with(std::move(grammar), task);
}

/// On a thread for grammars.
void ApiCall::compile_grammar(const std::shared_ptr<ApiTask>& task) {
  std::shared_ptr<const CompiledGrammar> grammar;
  try {
    check_in();
    grammar = api::compile_grammar(context_.grammars, *task->generation().constraint, [this] { check_in(); });
  } catch (const std::exception&) {
    fail(current_error());
    return leave_preparations();
  }
  prepare_with(std::move(grammar), task);
}

/// `grammar` is held until the matchers are made, so that it is still there.
void ApiCall::prepare_with(std::shared_ptr<const CompiledGrammar> grammar, const std::shared_ptr<ApiTask>& task) {
  run_on(task->step(context_.settings.limits),
         [call = shared_from_this(), task, grammar = std::move(grammar)] { call->prepare(*task); });
}

/// On a thread of a pool.
void ApiCall::prepare(ApiTask& task) {
  try {
    check_in();
    const ServerLimits& limits = context_.settings.limits;
    const GenerationFields& fields = task.generation();
    PreparedCall prepared = task.prepare({.limits = limits, .check_in = [this] { check_in(); }, .deadline = {}});
    bound_answer(prepared.requests, {.most_bytes = limits.answer_bytes,
                                     .vocab_size = context_.settings.vocab_size,
                                     .form = fields.streams ? AnswerForm::kStream : AnswerForm::kWhole,
                                     .may_shorten = !fields.max_tokens});
    submit(std::move(prepared));
  } catch (const std::exception&) {
    fail(current_error());
    abort_requests();  // those that were submitted before
  }
  leave_preparations();
  // A call that was ended while its requests were on the way in has missed that.
  if (is_gone_ || is_aborted_) abort_requests();
}

void ApiCall::check_in() const {
  if (is_gone_ || is_aborted_) throw Error(ErrorCode::kUnavailable, "the call was ended while its prompt was made");
  if (const std::optional<Error> failure = context_.engine.failure()) throw *failure;
}

void ApiCall::submit(PreparedCall prepared) {
  {
    const std::scoped_lock lock(mutex_);
    answer_ = std::move(prepared.answer);
    num_open_ = prepared.requests.size();
  }
  if (prepared.requests.size() > 1) {
    const auto call = std::make_shared<CallRequests>();
    for (Request& request : prepared.requests) request.call = call;
  }
  NotedRequests noted(note_);
  for (std::size_t i = 0; i < prepared.requests.size(); ++i) {
    Request& request = prepared.requests[i];
    request.owner = owner_;
    request.arrival = arrival_;
    EventSink sink = [call = shared_from_this(), i](const GenerateEvent& event) { call->on_event(i, event); };
    sink = noted.observe(request, std::move(sink));
    if (RequestSpans* const spans = context_.engine.spans()) sink = spans->observe(request, caller_, std::move(sink));
    const RequestNumber number = context_.engine.submit(std::move(request), std::move(sink));
    const std::scoped_lock lock(mutex_);
    numbers_.push_back(number);
  }
  release_events();
}

/// All requests are in: what was told of the first ones meanwhile can be told on.
void ApiCall::release_events() {
  const std::scoped_lock lock(mutex_);
  holds_events_ = false;
  for (const auto& [choice, event] : held_events_) handle(choice, event);
  held_events_.clear();
}

/// On the engine's thread.
void ApiCall::on_event(std::size_t choice, const GenerateEvent& event) {
  const std::scoped_lock lock(mutex_);
  if (is_over_) return;
  try {
    if (holds_events_) {
      held_events_.emplace_back(choice, event);
    } else {
      handle(choice, event);
    }
  } catch (const std::exception&) {  // such as std::bad_alloc: it is this call's matter alone
    try {
      end_with(current_error());
    } catch (const std::exception&) {  // not even for that is there memory
      drop();
    }
  }
}

/// Without an answer of its own: the reply says that it was dropped, if it can. Needs mutex_.
void ApiCall::drop() {
  is_over_ = true;
  stream_.reset();
  answer_.reset();
  reply_.reset();
}

/// Needs mutex_.
void ApiCall::handle(std::size_t choice, const GenerateEvent& event) {
  if (is_over_) return;
  if (event.finish_reason == FinishReason::kError)
    return end_with(ApiError(event.error.value_or(Error(ErrorCode::kInternal, "the engine failed"))));
  if (stream_ == nullptr) {
    held_->add(event_bytes(event));
    answer_->keep(choice, event);
  } else if (const std::string text = answer_->chunk(choice, event); !text.empty()) {
    stream_->write(text);
  }
  if (event.finish_reason != FinishReason::kNone && --num_open_ == 0) finish();
}

/// All choices have ended. Needs mutex_.
void ApiCall::finish() {
  is_over_ = true;
  if (stream_ != nullptr) {
    stream_->write(answer_->last_chunks());
    stream_->finish();
    return;
  }
  const bool is_taken = context_.finishers.try_run([call = shared_from_this()] { call->send_whole(); });
  if (!is_taken) send_whole();
}

/// The call is over, so nobody else uses what it takes.
void ApiCall::send_whole() {
  try {
    reply_->send({.status = 200, .body = answer_->whole(), .headers = headers_});
  } catch (const std::exception&) {
    answer_.reset();  // its memory is of use for the error
    reply_->send(errors_.response(current_error()));
  }
  if (!held_->was_large()) return;
  answer_.reset();
  return_free_pages();
}

void ApiCall::fail(const ApiError& error) {
  const std::scoped_lock lock(mutex_);
  if (!is_over_) answer_with(error);
}

/// Needs mutex_.
void ApiCall::answer_with(const ApiError& error) {
  is_over_ = true;
  HttpResponse response = errors_.response(error);
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  if (stream_ == nullptr) return reply_->send(std::move(response));
  if (stream_->answer_instead(std::move(response))) return;
  const std::optional<std::string> told = answer_ == nullptr ? std::nullopt : answer_->failed(error);
  stream_->write(told ? *told : errors_.stream_end(error));
  stream_->finish();
}

/// Answers and ends what still runs. A sink may not call the coordinator, so a pool does; without a place in its queue the
/// requests come to their own ends. Needs mutex_.
void ApiCall::end_with(const ApiError& error) {
  answer_with(error);
  static_cast<void>(context_.finishers.try_run([call = shared_from_this()] { call->abort_requests(); }));
}

/// On the I/O thread.
void ApiCall::on_client_gone() {
  is_gone_ = true;
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  abort_requests();
}

void ApiCall::abort_requests() {
  std::vector<RequestNumber> numbers;
  {
    const std::scoped_lock lock(mutex_);
    numbers = numbers_;
  }
  for (const RequestNumber number : numbers) context_.engine.abort(number);
}

void ApiCall::leave_preparations() {
  std::optional<Preparations::Place> place;
  {
    const std::scoped_lock lock(mutex_);
    place.swap(place_);
  }
  if (place) context_.preparations.leave(*place);
}

}  // namespace ferry::api
