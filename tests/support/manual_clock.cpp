#include "tests/support/manual_clock.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/eventually.h"

namespace ferry {

Clock::Time ManualClock::now() const {
  const std::scoped_lock lock(mutex_);
  return now_;
}

void ManualClock::wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Time until) {
  std::list<Sleeper>::iterator self;
  {
    const std::scoped_lock own(mutex_);
    if (now_ >= until) return;
    self = sleepers_.insert(sleepers_.end(), Sleeper{lock.mutex(), &changed, until});
    has_sleeper_.notify_all();
  }
  changed.wait(lock);  // wake_due() takes the lock before it notifies, so it cannot come before this wait
  const std::scoped_lock own(mutex_);
  sleepers_.erase(self);
}

void ManualClock::advance(Duration span) {
  {
    const std::scoped_lock lock(mutex_);
    now_ += span;
  }
  wake_due();
}

int ManualClock::num_asleep() const {
  return static_cast<int>(std::ranges::count_if(sleepers_, [this](const Sleeper& sleeper) { return sleeper.until > now_; }));
}

void ManualClock::wake_due() {
  // A sleeper leaves the list while it holds its own lock. So its lock is only tried here, where the list's is held.
  for (;;) {
    bool all_notified = true;
    {
      const std::scoped_lock lock(mutex_);
      for (Sleeper& sleeper : sleepers_) {
        if (sleeper.until > now_) continue;
        if (!sleeper.mutex->try_lock()) {
          all_notified = false;
          continue;
        }
        sleeper.changed->notify_all();
        sleeper.mutex->unlock();
      }
    }
    if (all_notified) return;
    std::this_thread::yield();
  }
}

void ManualClock::wait_for_sleepers(int count) const {
  std::unique_lock lock(mutex_);
  if (!has_sleeper_.wait_for(lock, kTestLimit, [&] { return num_asleep() >= count; })) {
    throw std::runtime_error("waited for " + std::to_string(count) + " threads to sleep on the clock; " +
                             std::to_string(num_asleep()) + " do");
  }
}

Clock::Time ManualClock::next_wake() const {
  const std::scoped_lock lock(mutex_);
  Time earliest = Time::max();
  for (const Sleeper& sleeper : sleepers_) {
    if (sleeper.until > now_) earliest = std::min(earliest, sleeper.until);
  }
  return earliest;
}

void ManualClock::advance_to_next_wake(int count) {
  wait_for_sleepers(count);
  const Time next = next_wake();
  if (next != Time::max() && next > now()) advance(next - now());
}

}  // namespace ferry
