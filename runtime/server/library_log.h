#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "runtime/base/clock.h"

namespace ferry {

/// Writes what gRPC's and protobuf's libraries report. Anybody who reaches the port can cause such a line with each call, so no
/// more than kLinesPerMinute of them are written, and one line tells how many are missing. Any thread may call any method.
class LibraryLog {
 public:
  static constexpr int kLinesPerMinute = 10;
  static constexpr int kMaxUnreadBytes = 16 << 10;  // of a pipe whose reader is slow; the rest of it is for others

  /// Writes to `fd`, which outlives this.
  LibraryLog(int fd, Clock& clock) : fd_(fd), clock_(clock) {}
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;

  /// Writes one line, shortened to kMaxLineBytes, or counts it as missing. It never waits for the reader of a pipe.
  void add(std::string_view library, std::string_view text);

 private:
  static constexpr std::size_t kMaxLineBytes = 500;

  bool write_line(std::string_view line) const;

  const int fd_;
  Clock& clock_;
  std::mutex mutex_;  // guards all below
  Clock::Time minute_{};
  int num_in_minute_ = 0;
  int64_t num_missing_ = 0;
};

/// From here on both libraries report to one LibraryLog on stderr. Call it once gRPC has started.
void use_library_log();

}  // namespace ferry
