#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

#include "profiler/capture.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

// The clock that spans are stamped with: the processor's time stamp counter where it is invariant and the kernel itself trusts
// it, else CLOCK_MONOTONIC. Ticks are turned into nanoseconds only when a capture is read.

namespace ferry {

namespace detail {
extern const bool ticks_are_tsc;
}

/// Whether a tick is one of the time stamp counter; else it is a nanosecond of CLOCK_MONOTONIC.
inline bool ticks_are_tsc() { return detail::ticks_are_tsc; }

/// About 10 ns from the counter, 25 ns from the system. Any thread.
inline uint64_t now_ticks() {
#if defined(__x86_64__)
  if (detail::ticks_are_tsc) return __rdtsc();
#endif
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

/// Learns ticks -> CLOCK_MONOTONIC from pairs taken at construction and whenever line() is asked. One thread at a time.
class TickCalibration {
 public:
  TickCalibration();
  /// The line through the first pair and one taken now. The longer ago the first, the better: a few ppm after 10 ms.
  TickLine line() const;

 private:
  struct Pair {
    uint64_t ticks;
    int64_t ns;
  };
  static Pair take_pair();

  Pair first_;
};

/// The ticks at which `time` was, by `line`.
uint64_t to_ticks(const TickLine& line, std::chrono::steady_clock::time_point time);

}  // namespace ferry
