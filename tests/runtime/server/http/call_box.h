#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "runtime/server/http/router.h"
#include "tests/support/eventually.h"

namespace ferry::test {

/// Hears how a call ends.
class End {
 public:
  HttpEndCallback callback() {
    return [promise = promise_](HttpEnd end) { promise->set_value(end); };  // a second call would throw
  }
  HttpEnd wait() {
    EXPECT_EQ(future_.wait_for(kTestLimit), std::future_status::ready) << "nobody said that the call ended";
    return future_.get();
  }
  bool has_come() const { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::shared_ptr<std::promise<HttpEnd>> promise_ = std::make_shared<std::promise<HttpEnd>>();
  std::future<HttpEnd> future_ = promise_->get_future();
};

/// Calls that a server has handed over, for a test to answer from its own thread.
class CallBox {
 public:
  HttpHandler handler() {
    return [this](const HttpRequest&, HttpReply reply) {
      const std::scoped_lock lock(mutex_);
      calls_.push_back(std::make_unique<HttpReply>(std::move(reply)));
      changed_.notify_all();
    };
  }
  /// The next call, once it has come. Throws if none comes.
  std::unique_ptr<HttpReply> take() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kTestLimit, [&] { return !calls_.empty(); })) throw std::runtime_error("no call came");
    std::unique_ptr<HttpReply> call = std::move(calls_.front());
    calls_.pop_front();
    return call;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<HttpReply>> calls_;
};

}  // namespace ferry::test
