#include "runtime/base/clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"

namespace ferry {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

/// A thread that waits on a clock until it is told to go or `span` has passed.
class Sleeper {
 public:
  Sleeper(Clock& clock, Clock::Duration span)
      : thread_([this, &clock, span] {
          std::unique_lock lock(mutex_);
          was_told_ = clock.wait_for(lock, changed_, span, [this] { return may_go_; });
          is_done_ = true;
          changed_.notify_all();
        }) {}
  ~Sleeper() { thread_.join(); }

  void tell() {
    const std::scoped_lock lock(mutex_);
    may_go_ = true;
    changed_.notify_all();
  }
  bool is_done() {
    const std::scoped_lock lock(mutex_);
    return is_done_;
  }
  /// Whether it was told, once it has woken.
  bool was_told() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kTestLimit, [this] { return is_done_; })) throw std::runtime_error("the sleeper never woke");
    return was_told_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool may_go_ = false;
  bool is_done_ = false;
  bool was_told_ = false;
  std::thread thread_;
};

TEST(RealClock, EndsAWaitThatNobodyNotifies) {
  Sleeper sleeper(real_clock(), std::chrono::milliseconds(1));
  EXPECT_FALSE(sleeper.was_told());
}

TEST(RealClock, WakesWhenTheConditionHolds) {
  Sleeper sleeper(real_clock(), hours(1));
  sleeper.tell();
  EXPECT_TRUE(sleeper.was_told());
}

TEST(ManualClock, WakesAThreadWhenItsTimeHasCome) {
  ManualClock clock;
  Sleeper sleeper(clock, seconds(10));
  clock.wait_for_sleepers(1);
  clock.advance(seconds(9));
  EXPECT_FALSE(sleeper.is_done());
  clock.advance(seconds(1));
  EXPECT_FALSE(sleeper.was_told());
}

TEST(ManualClock, StandsStillWhileAThreadIsNotified) {
  ManualClock clock;
  const Clock::Time before = clock.now();
  Sleeper sleeper(clock, seconds(10));
  clock.wait_for_sleepers(1);
  sleeper.tell();
  EXPECT_TRUE(sleeper.was_told());
  EXPECT_EQ(clock.now(), before);
}

TEST(ManualClock, WakesTheEarliestOfSeveralThreads) {
  ManualClock clock;
  Sleeper late(clock, hours(2));
  Sleeper early(clock, hours(1));
  clock.advance_to_next_wake(2);
  EXPECT_FALSE(early.was_told());
  EXPECT_FALSE(late.is_done());
  clock.advance_to_next_wake();
  EXPECT_FALSE(late.was_told());
}

TEST(ManualClock, LosesNoWakeUpBetweenTheLookAndTheWait) {
  for (int i = 0; i < 200; ++i) {
    ManualClock clock;
    Sleeper sleeper(clock, seconds(1));
    const auto moved_until_it_wakes = [&] {
      if (sleeper.is_done()) return true;
      clock.advance(seconds(1));  // before, while or after the thread goes to sleep
      return false;
    };
    eventually(moved_until_it_wakes, "the sleeper's end");
    EXPECT_FALSE(sleeper.was_told());
  }
}

}  // namespace
}  // namespace ferry
