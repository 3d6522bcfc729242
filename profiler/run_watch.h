#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/clock.h"

namespace ferry {

/// Notices when this process as a whole did not run: stopped by a signal or a debugger, a paused container or virtual machine.
/// A thread of its own looks at the clock every kPeriod, or a little later when the system has a timer's interrupt anyway: a
/// wake of its own takes some 40 us from the threads that compute where a hypervisor has its hand in timers. Where it comes
/// late, and not for want of a core, it records not_running from the last moment at which any thread recorded something, with
/// what it waited for a core itself. Stops of kMinGap are noticed, but for those that fall into the moment in which it empties
/// rings, shorter ones sometimes: since it wakes anyway, it moves what rings hold to a running capture, too. While nothing is
/// recorded it hardly wakes.
class RunWatch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{20};
  static constexpr std::chrono::milliseconds kSlack{4};
  static constexpr std::chrono::milliseconds kMinGap{28};  // between two looks: shorter ones are the scheduler's

  explicit RunWatch(Clock& clock = real_clock());
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

 private:
  void run();

  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable leave_;
  bool is_leaving_ = false;
  std::thread thread_;
};

/// A RunWatch saw this between two looks.
struct WatchLook {
  uint64_t looked = 0, woke = 0;          // ticks
  std::chrono::nanoseconds gap{0};        // the same time, by the clock that the watch sleeps by
  std::chrono::nanoseconds core_wait{0};  // of it, what the watch waited for a core
};

/// When the stop began that `look` shows, in ticks; nothing if it shows none. `last_end` tells the last moment up to a limit at
/// which any thread recorded something (Recorder::last_end). Any thread.
std::optional<uint64_t> find_stop(const WatchLook& look, const std::function<uint64_t(uint64_t limit)>& last_end);

}  // namespace ferry
