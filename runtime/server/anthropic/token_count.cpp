#include "runtime/server/anthropic/token_count.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/random_id.h"
#include "runtime/server/anthropic/message_error.h"
#include "runtime/server/anthropic/message_request.h"
#include "runtime/server/api/api_context.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/prompt_making.h"

namespace ferry::api::anthropic {
namespace {

constexpr std::chrono::seconds kCountTime{60};  // for a prompt's pictures

/// One call. The threads that make its prompt hold it, and it is among the preparations for as long.
class CountCall : public std::enable_shared_from_this<CountCall> {
 public:
  CountCall(ApiContext& context, HttpRequest request, HttpReply reply)
      : context_(context), request_(std::move(request)), reply_(std::move(reply)) {}
  ~CountCall() {
    if (place_) context_.preparations.leave(*place_);
  }
  CountCall(const CountCall&) = delete;
  CountCall& operator=(const CountCall&) = delete;

  void begin() {
    reply_.set_on_closed([weak = weak_from_this()](HttpEnd end) {
      if (const auto call = weak.lock(); call != nullptr && end != HttpEnd::kAnswered) call->is_unwanted_ = true;
    });
    attempt([this] {
      place_ = context_.preparations.enter("http " + random_id(), "", [this] { is_unwanted_ = true; });
      run_on({}, &CountCall::read);
    });
  }

 private:
  /// Answers with what `work` throws.
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const std::exception&) {
      reply_.send(message_errors().response(current_error()));
    }
  }

  void run_on(PromptStep step, void (CountCall::*work)()) {
    step.key = key_of(request_);
    const auto run = [call = shared_from_this(), work] { call->attempt([&] { (*call.*work)(); }); };
    if (!context_.pools.try_run(step, run)) throw context_.pools.refusal();
  }

  void read() {
    check_in();
    const ordered_json body = read_body(request_.body, context_.settings.limits);
    const RequestFields fields(body);
    check_model(fields, context_.settings);
    prompt_ = parse_message_prompt(fields, context_.settings);
    PromptStep step = step_of_chat(prompt_, context_.settings.limits);
    if (step.work == PromptWork::kText) return count();
    run_on(std::move(step), &CountCall::count);
  }

  void count() {
    check_in();
    const PromptTask task{.limits = context_.settings.limits,
                          .check_in = [this] { check_in(); },
                          .deadline = std::chrono::steady_clock::now() + kCountTime};
    const MediaPrompt made = encode_chat(context_.engine, prompt_, {}, task);
    reply_.send({.status = 200, .body = dump({{"input_tokens", made.ids.size()}})});
  }

  void check_in() const {
    if (is_unwanted_) throw Error(ErrorCode::kUnavailable, "the call was ended while its prompt was made");
    if (const std::optional<Error> failure = context_.engine.failure()) throw *failure;
  }

  ApiContext& context_;
  const HttpRequest request_;
  HttpReply reply_;
  std::optional<Preparations::Place> place_;
  std::atomic<bool> is_unwanted_{false};
  ChatPrompt prompt_;  // once it is read
};

}  // namespace

void start_token_count(ApiContext& context, HttpRequest request, HttpReply reply) {
  std::make_shared<CountCall>(context, std::move(request), std::move(reply))->begin();
}

}  // namespace ferry::api::anthropic
