#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/counters/counter_readings.h"
#include "profiler/counters/perf_group.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

/// Everything that is counted of one thread: by perf where there is that, and what /proc knows of every thread. Any thread may
/// use it, one at a time.
class ThreadCounters {
 public:
  static constexpr std::size_t kMostFiles = 11;  // that it has open

  enum class Perf { kTried, kLeftOut };

  /// Of thread `tid` of this process, from `now` (ticks) on. `perf` leaves out the system's perf, as where it is not allowed.
  ThreadCounters(int64_t tid, uint64_t now, Perf perf = Perf::kTried);

  int64_t tid() const { return tid_; }
  /// One for each counter of threads.
  std::vector<CounterSource> sources() const;
  /// What was counted since the last call, or the construction; step and zone are the caller's to fill in. Three system calls,
  /// some four microseconds.
  CounterReading take(uint64_t now);

 private:
  struct Standing {
    PerfReading hardware, software;
    CounterValues kernel{};  // what /proc says
  };
  Standing read() const;
  void read_schedstat(CounterValues& values) const;
  void read_stat(CounterValues& values) const;

  int64_t tid_;
  PerfGroup hardware_, software_;
  FileDescriptor schedstat_, stat_;  // stat_: where software_ counts no faults
  uint64_t since_;
  Standing last_;
};

}  // namespace ferry
