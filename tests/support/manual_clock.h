#pragma once

#include <condition_variable>
#include <list>
#include <mutex>

#include "runtime/base/clock.h"

namespace ferry {

/// A clock that stands still until a test moves it. Threads that wait on it wake when they are notified or when advance()
/// passes what they wait for. Every member may be called from any thread.
///
/// A typical test waits until the object's thread sleeps, moves the clock, and waits for the effect:
///   clock.wait_for_sleepers(1);
///   clock.advance(watch.period());
///   eventually([&] { return watch.complaint().has_value(); }, "a complaint");
class ManualClock final : public Clock {
 public:
  /// Starts at an arbitrary time that is not zero.
  ManualClock() = default;

  Time now() const override;
  void wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Time until) override;
  using Clock::wait_until;

  /// Moves the clock on, and wakes every thread whose time has come. Do not hold a mutex with which a thread waits here.
  void advance(Duration span);

  /// Returns when at least `count` threads wait on this clock. Fails the test, by an exception, after kTestLimit.
  void wait_for_sleepers(int count) const;
  /// The earliest time that a thread waits for; Time::max() if no thread waits.
  Time next_wake() const;
  /// Waits for `count` sleepers, then moves the clock to the earliest time that one of them waits for.
  void advance_to_next_wake(int count = 1);

 private:
  struct Sleeper {
    std::mutex* mutex;
    std::condition_variable* changed;
    Time until;
  };

  /// Those whose time has not come; the others are about to leave the list. Needs mutex_.
  int num_asleep() const;
  void wake_due();

  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable has_sleeper_;
  Time now_{std::chrono::hours(1000)};
  std::list<Sleeper> sleepers_;
};

}  // namespace ferry
