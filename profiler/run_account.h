#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Whether a rank's threads had a core. The kernel's word for time that a thread was ready and waited for one is the run-queue
// delay (/proc/self/task/TID/schedstat); for cores taken away, involuntary context switches. Neither counts a process that was
// stopped: RunWatch (profiler/run_watch.h) notices that.

namespace ferry {

class OperatorCounts;

/// Keeps readings of counters to a quarter of a percent of the time, by what the last one took (half a microsecond a counter
/// where that was measured); a thread has two of them. A wait for a core that counts makes its step so long that the reading at
/// its end is due. A reading that was itself held up, and took more than kMostPerCounter for each, does not put off the next
/// one.
class ReadingPace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kShare = 400;
  static constexpr std::chrono::microseconds kMostPerCounter{20};

  bool is_due(Time now) const { return now >= due_; }
  void took(Time begin, Time end, std::size_t num_counters) {
    due_ = end + kShare * std::min<std::chrono::steady_clock::duration>(end - begin, num_counters * kMostPerCounter);
  }

 private:
  Time due_{};
};

/// Counts one thread's run-queue delay.
class DelayCounter {
 public:
  /// Of thread `tid` of this process. Where the kernel keeps no such statistics the delay stays 0.
  explicit DelayCounter(int64_t tid);
  /// The same from a file that looks like the kernel's, for tests.
  DelayCounter(int64_t tid, const std::string& schedstat);
  ~DelayCounter();
  DelayCounter(DelayCounter&& other) noexcept;
  DelayCounter& operator=(DelayCounter&&) = delete;

  int64_t tid() const { return tid_; }
  /// The ticks of the last take_ns(), or of the construction.
  uint64_t since() const { return since_; }
  /// Nanoseconds since then.
  int64_t take_ns();

 private:
  int64_t read_ns() const;

  int64_t tid_;
  int file_;
  int64_t last_ns_ = 0;
  uint64_t since_ = 0;
};

/// Records wait.core and preemptions of this process's threads where the trace's level asks for them, and has their counters
/// read while a capture runs that counts. Used by the thread that steps, which records with its own step and layer.
class RunAccount {
 public:
  RunAccount();
  ~RunAccount();
  RunAccount(const RunAccount&) = delete;
  RunAccount& operator=(const RunAccount&) = delete;

  /// What the calling thread waited for a core since the last reading, if one is due: for every exchange of a worker.
  void record_own();
  /// The same of every other registered thread, and the preemptions of all, as of the step and no layer.
  void record_others();

 private:
  void read_counters();
  void count_operators();
  void follow_threads();
  static void record(DelayCounter& counter);

  std::vector<DelayCounter> own_, others_;  // own_: one, made on the thread it counts
  ReadingPace own_pace_, others_pace_;
  std::unique_ptr<OperatorCounts> operator_counts_;
  uint64_t operators_since_ = 0;  // ticks
  uint64_t threads_seen_ = 0;     // Recorder::num_registrations() when others_ was made
  int64_t preemptions_ = -1;      // of the process; -1: not yet asked
};

}  // namespace ferry
