#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ferry {

/// A class takes the time from the Clock that its constructor was given. Its deadlines, periods, time-outs and histories all
/// use that one. The program passes real_clock(). A test passes a ManualClock (tests/support/manual_clock.h), which
/// moves only when the test says so.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~Clock() = default;
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  /// Any thread.
  virtual Time now() const = 0;

  /// Waits until `changed` is notified or the clock reads `until`. `lock` is held before and after. It may return early, as a
  /// condition variable may, so call it in a loop or use the variants with a condition. Any thread.
  virtual void wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Time until) = 0;

  /// Waits until `is_ready()`, which is called with `lock` held, or until the clock reads `until`. Returns `is_ready()`.
  template <typename Condition>
  bool wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Time until, Condition is_ready) {
    while (!is_ready()) {
      if (now() >= until) return is_ready();
      wait_until(lock, changed, until);
    }
    return true;
  }

  /// The same for a span of time from now on.
  template <typename Condition>
  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Duration span, Condition is_ready) {
    return wait_until(lock, changed, now() + span, is_ready);
  }
};

/// The machine's monotonic clock.
Clock& real_clock();

}  // namespace ferry
