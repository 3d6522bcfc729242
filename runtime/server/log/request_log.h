#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/server/log/request_line.h"

namespace ferry {

/// Writes a line for each request that has ended, on a thread of its own, so add() never waits for the reader. If the reader is
/// slow or has gone, lines are dropped and counted, and a line says how many are missing. Any thread may call any method.
/// SIGPIPE must be ignored.
class RequestLog {
 public:
  enum class Form { kText, kJson };
  static constexpr std::size_t kMaxQueued = 4096;               // lines
  static constexpr std::chrono::milliseconds kLeaveTime{1000};  // in which what is queued at the end may still be written

  /// Writes to `fd`, which outlives this and has no other writer.
  RequestLog(Form form, int fd);
  /// Writes what is queued while the reader takes it and kLeaveTime is not over.
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  void add(EndedRequest request);

  /// Adds what `make` returns. If memory is short, the line counts as dropped, so the request's end never fails because of it.
  template <class Make>
  void add_made(const Make& make) noexcept {
    try {
      add(make());
    } catch (const std::exception&) {
      drop();
    }
  }

  struct Count {
    int64_t written = 0, dropped = 0;  // lines of requests
  };
  Count count() const;

 private:
  void drop();
  void run();
  std::string line_of(const EndedRequest& request) const;
  std::string gap_of(int64_t num_lines) const;
  bool write_line(const std::string& line);
  bool wait_until_writable();
  bool is_late() const;
  bool has_no_time_left() const;
  bool give_up(int error);

  const Form form_;
  const int fd_;
  mutable std::mutex mutex_;  // guards all below but has_complained_
  std::condition_variable news_;
  std::deque<EndedRequest> queue_;
  Count count_;
  int64_t num_unsaid_ = 0;                                        // dropped lines that no line reports yet
  std::optional<std::chrono::steady_clock::time_point> leaving_;  // since when it is time to leave
  bool has_complained_ = false;                                   // of the thread: that lines cannot be written
  std::thread thread_;
};

}  // namespace ferry
