#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ferry {

/// Notices when this process as a whole did not run: stopped by a signal or a debugger, a paused container or virtual machine. A
/// thread of its own looks at the clock every kPeriod; where it comes late it records not_running over the time it missed, with what
/// it waited for a core itself, so that a stop and a lack of cores can be told apart. While nothing is recorded it hardly wakes.
class RunWatch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{2};
  static constexpr std::chrono::milliseconds kMinGap{6};  // between two looks: shorter ones are the scheduler's

  RunWatch();
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable leave_;
  bool is_leaving_ = false;
  std::thread thread_;
};

}  // namespace ferry
