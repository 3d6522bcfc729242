#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ferry {

/// What happened in a simulated run, a line each. Two runs of one seed have the same lines but for details, and so the same
/// hash.
class EventLog {
 public:
  enum class Echo { kOff, kStderr };
  explicit EventLog(Echo echo = Echo::kOff) : echo_(echo) {}

  /// `time` since the run's start. `detail` stands behind the line but is not part of the hash: an Error's text may hold sizes
  /// of what was recorded in real time.
  void add(std::chrono::nanoseconds time, const std::string& line, const std::string& detail = {});

  uint64_t hash() const { return hash_; }

 private:
  Echo echo_;                            // kStderr: also says each line at once, so that a crash shows what came before it
  uint64_t hash_ = 0xcbf29ce484222325U;  // FNV-1a of all lines without details
};

}  // namespace ferry
