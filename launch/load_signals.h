#pragma once

#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace ferry {

/// While it lives, SIGTERM and SIGINT call `leave` with their number, on a thread of its own. A command makes one while it
/// reads weights, which can take minutes, and destroys it before it waits for the signals itself. Both signals must be blocked
/// in all threads.
class LoadSignals {
 public:
  using Leave = std::function<void(int signal)>;

  /// The default ends the process at once with 128 + the signal's number.
  explicit LoadSignals(Leave leave = end_process);
  ~LoadSignals();
  LoadSignals(const LoadSignals&) = delete;
  LoadSignals& operator=(const LoadSignals&) = delete;

 private:
  [[noreturn]] static void end_process(int signal);
  bool is_over();
  void run();

  const Leave leave_;
  std::mutex mutex_;
  std::condition_variable news_;
  bool is_over_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace ferry
