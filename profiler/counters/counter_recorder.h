#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "profiler/counters/counter_readings.h"
#include "profiler/counters/machine_counters.h"
#include "profiler/counters/thread_counters.h"

namespace ferry {

/// Counts while a capture runs: threads at the ends of steps, the machine whenever read_machine() comes. Times are ticks that
/// the caller reads. Any thread may call any method.
///
/// begin() is for the thread that steps and opens nothing. A kernel that counts for the first time patches itself and waits for
/// all cores, and on a busy machine even a file of /proc waits: one to 75 milliseconds were seen. open_next() is for a thread
/// that nobody waits for.
class CounterRecorder {
 public:
  /// Threads are read in a thousandth of the time of whoever reads them.
  static constexpr int kShare = 1000;

  /// Threads and the machine are to be counted, in a quarter of the files that the process may have open. At most
  /// `max_readings` are kept; their memory is taken here.
  void begin(std::span<const int64_t> tids, std::size_t max_readings);
  /// Opens the counters of the next thread, or of the machine; they count from `now` on. False once all are open, another
  /// thread is at it, or there is nothing to be counted any more.
  bool open_next(uint64_t now);
  /// Counts a further thread from now on, or one no more that ends, if a capture runs.
  void add_thread(int64_t tid, uint64_t now);
  void retire_thread(int64_t tid, uint64_t now);
  /// From the moment on at which all counters are open.
  bool is_counting() const { return is_counting_.load(std::memory_order_relaxed); }

  /// What each thread did since it was last read, if it is time to read them again and nobody else is at it. `step` has just
  /// ended.
  void read_threads(uint32_t step, uint64_t now);
  void read_machine(uint64_t now);
  /// Sums that a thread made of its own, in `step`.
  void add(std::span<const CounterReading> readings, uint32_t step);

  /// Reads everything a last time and hands it over; closes the counters. What was not open by then is said to be absent.
  CounterCapture end(uint64_t now);
  /// Closes the counters and drops what they counted.
  void discard() noexcept;

 private:
  using SteadyClock = std::chrono::steady_clock;

  void keep(const CounterReading& reading);
  bool has_room_for_thread();
  void add_counters(ThreadCounters counters);
  bool open_thread(std::unique_lock<std::mutex>& lock, uint64_t now);
  void open_machine(std::unique_lock<std::mutex>& lock, uint64_t now);
  void close() noexcept;
  void read_all_threads(uint32_t step, uint64_t now);

  std::atomic<bool> is_counting_{false};
  std::mutex mutex_;  // guards everything below
  bool is_running_ = false;
  uint64_t num_begun_ = 0;        // captures: who opens files sees whether it is still the same one
  std::vector<int64_t> waiting_;  // threads whose counters are to be opened, the next one last
  int64_t opening_ = 0;           // the thread whose counters are being opened; 0: none
  std::vector<ThreadCounters> threads_;
  std::unique_ptr<MachineCounters> machine_;
  CounterCapture capture_;
  std::size_t max_readings_ = 0, max_threads_ = 0;
  SteadyClock::time_point due_{};
};

}  // namespace ferry
