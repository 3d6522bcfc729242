#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/coordinator.h"
#include "tests/support/eventually.h"

namespace ferry::test {

inline constexpr auto kCompletionTimeout = kTestLimit;

/// Collects one request's events; any thread may wait for the last one. Keep it alive until then.
class Completion {
 public:
  /// `on_event` runs on the engine's thread, after each event was taken in.
  EventSink sink(std::function<void(const Completion&)> on_event = {}) {
    return [this, on_event = std::move(on_event)](const GenerateEvent& event) {
      {
        const std::scoped_lock lock(mutex_);
        EXPECT_FALSE(is_done_) << "an event after the last one";
        tokens.insert(tokens.end(), event.token_ids.begin(), event.token_ids.end());
        text += event.text;
        logprobs.insert(logprobs.end(), event.logprobs.begin(), event.logprobs.end());
        if (!event.prompt_logprobs.empty()) prompt_logprobs = event.prompt_logprobs;
        if (event.finish_reason != FinishReason::kNone) last = event;
      }
      if (on_event) on_event(*this);
      const std::scoped_lock lock(mutex_);  // the last that happens: who waits may destroy this then
      is_done_ = event.finish_reason != FinishReason::kNone;
      if (is_done_) done_.notify_all();
    };
  }
  /// Waits for the last event.
  const Completion& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, kCompletionTimeout, [&] { return is_done_; })) << "no last event";
    return *this;
  }
  bool is_done() const {
    const std::scoped_lock lock(mutex_);
    return is_done_;
  }

  // Read after wait(), or on the engine's thread.
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<TokenLogprobs> logprobs, prompt_logprobs;
  GenerateEvent last;

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
};

/// A request that holds the engine's thread in its sink at its second token, until released: what happens meanwhile is then
/// certain to happen while this one runs.
class HeldRequest {
 public:
  HeldRequest(Coordinator& coordinator, Request request) {
    request.id = kId;
    request.sampling.ignore_eos = true;
    coordinator.submit(std::move(request), completion.sink([this](const Completion& c) {
      if (c.tokens.size() != 2 || was_held_) return;
      was_held_ = true;
      held_.set_value();
      released_.get_future().wait();
    }));
    EXPECT_EQ(held_.get_future().wait_for(kTestLimit), std::future_status::ready) << "its second token";
  }
  ~HeldRequest() { finish(); }
  void release() {
    if (!std::exchange(is_released_, true)) released_.set_value();
  }
  const Completion& finish() {
    release();
    return completion.wait();
  }

  static constexpr const char* kId = "held";
  Completion completion;

 private:
  std::promise<void> held_, released_;
  bool was_held_ = false;  // of the engine's thread
  bool is_released_ = false;
};

/// Submits the requests together and waits for all.
inline std::vector<std::unique_ptr<Completion>> complete_all(Coordinator& coordinator, const std::vector<Request>& requests) {
  std::vector<std::unique_ptr<Completion>> completions;
  for (const Request& request : requests) {
    completions.push_back(std::make_unique<Completion>());
    coordinator.submit(request, completions.back()->sink());
  }
  for (const auto& completion : completions) completion->wait();
  return completions;
}

/// Submits one request and waits for it.
inline std::unique_ptr<Completion> complete(Coordinator& coordinator, const Request& request) {
  return std::move(complete_all(coordinator, {request}).front());
}

/// A greedy request.
inline Request make_request(std::vector<TokenId> prompt, int32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

}  // namespace ferry::test
