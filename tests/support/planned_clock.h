#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "runtime/base/clock.h"

namespace ferry {

/// A clock by which it takes as long as a test has planned from one look at it to the next. What is timed between two looks
/// took exactly that long, whatever the machine does meanwhile. Any thread may look.
class PlannedClock final : public Clock {
 public:
  /// `span_before` is asked for the time before each look; looks count from 0.
  explicit PlannedClock(std::function<Duration(int64_t look)> span_before) : span_before_(std::move(span_before)) {}
  /// `span` before each.
  explicit PlannedClock(Duration span) : PlannedClock([span](int64_t) { return span; }) {}

  Time now() const override {
    const std::scoped_lock lock(mutex_);
    return now_ += span_before_(num_looks_++);
  }
  /// Waiting takes no time.
  void wait_until(std::unique_lock<std::mutex>&, std::condition_variable&, Time) override {}
  using Clock::wait_until;

 private:
  const std::function<Duration(int64_t look)> span_before_;
  mutable std::mutex mutex_;  // guards all below
  mutable Time now_{std::chrono::hours(1000)};
  mutable int64_t num_looks_ = 0;
};

}  // namespace ferry
