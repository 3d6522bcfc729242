#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>

#include "runtime/server/log/request_line.h"

namespace ferry {

/// Writes a line for each request that has ended, on a thread of its own, so add() never waits for the reader. If the reader is
/// slow or has gone, lines are dropped, and a line at their place says how many. Any thread may call any method. SIGPIPE must
/// be ignored.
class RequestLog {
 public:
  enum class Form { kText, kJson };
  static constexpr std::size_t kMaxQueued = 4096;               // lines
  static constexpr std::chrono::milliseconds kLeaveTime{1000};  // in which what is queued at the end may still be written

  /// Writes to `fd`, which stays open until the process ends.
  RequestLog(Form form, int fd);
  /// Writes what is queued while the reader takes it and kLeaveTime is not over. Says on stderr how many lines are lost. A
  /// thread that still waits in a write after twice that time is left behind: a terminal that is not read can hold it for ever.
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
  class Writer;

  void drop();

  const std::shared_ptr<Writer> writer_;  // the thread keeps it, too
  std::thread thread_;
};

}  // namespace ferry
