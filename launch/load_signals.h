#pragma once

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/clock.h"

namespace ferry {

/// Answers SIGTERM and SIGINT while a command reads weights, which can take minutes.
///
/// - A process without other ranks ends at once.
/// - One of several ranks goes on, because the others must learn of the end in order. The command gets the signal when this is
///   destroyed. A further signal after kSecondThought ends the process at once.
///
/// Both signals must be blocked in all threads.
class LoadSignals {
 public:
  static constexpr std::chrono::seconds kSecondThought{1};  // a launcher may send two signals for one

  /// Gets the exit code: 0 at the first signal, 128 and the signal's number at a further one. Called on a thread of its own.
  using Leave = std::function<void(int exit_code)>;

  /// `clock` outlives this.
  explicit LoadSignals(bool has_other_ranks, Leave leave = end_process, Clock& clock = real_clock());
  ~LoadSignals();
  LoadSignals(const LoadSignals&) = delete;
  LoadSignals& operator=(const LoadSignals&) = delete;

  /// Returns whether a signal has come that the command is to get. Any thread may call this.
  bool has_come() const { return signal_ != 0; }

 private:
  static void end_process(int exit_code);
  bool is_over();
  void run();
  void take(int signal);

  const bool has_other_ranks_;
  const Leave leave_;
  Clock& clock_;
  std::optional<Clock::Time> since_;  // the thread's own: when the first signal came
  std::atomic<int> signal_{0};        // the first, for the command
  std::mutex mutex_;
  std::condition_variable news_;
  bool is_over_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace ferry
