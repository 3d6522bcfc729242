#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "profiler/counters/counter_readings.h"
#include "profiler/counters/machine_counters.h"
#include "profiler/counters/thread_counters.h"

namespace ferry {

/// Counts while a capture runs: threads at the ends of steps, the machine whenever read_machine() comes. Times are ticks that
/// the caller reads. Any thread may call any method.
class CounterRecorder {
 public:
  /// Threads are read in a thousandth of the time of whoever reads them.
  static constexpr int kShare = 1000;

  /// Opens counters of the threads and the machine, in a quarter of the files that the process may have open. At most
  /// `max_readings` are kept; their memory is taken here.
  void begin(std::span<const int64_t> tids, std::size_t max_readings, uint64_t now);
  /// Counts a further thread from now on, or one no more that ends, if a capture runs.
  void add_thread(int64_t tid, uint64_t now);
  void retire_thread(int64_t tid, uint64_t now);
  bool is_counting() const { return is_counting_.load(std::memory_order_relaxed); }

  /// What each thread did since it was last read, if it is time to read them again. `step` has just ended.
  void read_threads(uint32_t step, uint64_t now);
  void read_machine(uint64_t now);
  /// Sums that a thread made of its own, in `step`.
  void add(std::span<const CounterReading> readings, uint32_t step);

  /// Reads everything a last time and hands it over; closes the counters.
  CounterCapture end(uint64_t now);
  /// Closes the counters and drops what they counted.
  void discard() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void keep(const CounterReading& reading);
  void count_thread(int64_t tid, uint64_t now);
  void read_all_threads(uint32_t step, uint64_t now);

  std::atomic<bool> is_counting_{false};
  std::mutex mutex_;  // guards everything below
  std::vector<ThreadCounters> threads_;
  std::optional<MachineCounters> machine_;
  CounterCapture capture_;
  std::size_t max_readings_ = 0, max_threads_ = 0;
  Clock::time_point due_{};
};

}  // namespace ferry
