#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "profiler/memory/memory_account.h"
#include "profiler/memory/memory_samples.h"

namespace ferry {

/// What the recorder itself holds: it is none of the heap's other contents.
struct TraceMemory {
  int64_t resident_bytes = 0;
  int64_t mapped_bytes = 0;  // of large pieces, touched or not
};

/// What is held, what the account says, and what the system says of this process: some 100 microseconds, and a millisecond
/// for 4 GiB. `status` is for tests.
MemorySample sample_memory(const MemoryAccount& account, const TraceMemory& trace, uint64_t now,
                           const char* status = "/proc/self/status");

/// Samples of a capture, five a second, or in a two-thousandth of the time of the thread that takes them. One thread at a time.
class MemoryRecorder {
 public:
  static constexpr std::chrono::milliseconds kPeriod{200};
  static constexpr int kShare = 2000;

  /// Takes the memory for `max_samples`, one at least: throws std::bad_alloc if there is none.
  void begin(std::size_t max_samples);
  bool is_due(std::chrono::steady_clock::time_point now) const { return now >= due_; }
  void sample(const MemoryAccount& account, const TraceMemory& trace, uint64_t now);
  /// Hands over all.
  MemoryCapture end();
  void discard() noexcept { capture_ = {}; }

 private:
  using SteadyClock = std::chrono::steady_clock;

  MemoryCapture capture_;
  SteadyClock::time_point due_{};
};

}  // namespace ferry
