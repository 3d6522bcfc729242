#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/timeout_factor.h"

namespace ferry {

constexpr std::chrono::seconds kWriteOut{2};

/// Ends the process past exit handlers and destructors, which could wait for a lost rank. `line` goes to stderr, if it is not
/// empty, and what was printed is written out; where a thread is stuck in a write, which keeps its file locked, SIGALRM ends
/// the process after `write_out` instead.
[[noreturn]] void exit_now(int exit_code, std::string_view line = {},
                           std::chrono::seconds write_out = scaled_timeout(kWriteOut));

/// Sees to it that a process which should end does end, whatever its other threads are stuck in. Any thread may call anything.
class ExitGuard {
 public:
  ExitGuard() = default;
  /// leave().
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

  /// Unless leave() comes within `limit`, prints `line` (if it is not empty) to stderr and ends the process with failure. The
  /// first call counts.
  void end_within(std::chrono::milliseconds limit, const std::string& line);
  /// From here on the process ends by itself. Returns when the guard's thread has ended.
  void leave();

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable left_;
  bool has_left_ = false;
  std::thread thread_;  // started by end_within
};

}  // namespace ferry
