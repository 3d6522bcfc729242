#include "runtime/server/log/request_log.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

namespace ferry {
namespace {

constexpr int kPollMs = 50;  // between looks at whether it is time to leave

}  // namespace

RequestLog::RequestLog(Form form, int fd) : form_(form), fd_(fd), thread_([this] { run(); }) {}

RequestLog::~RequestLog() {
  {
    const std::scoped_lock lock(mutex_);
    leaving_ = std::chrono::steady_clock::now();
  }
  news_.notify_all();
  thread_.join();
}

void RequestLog::add(EndedRequest request) {
  const std::scoped_lock lock(mutex_);
  if (queue_.size() >= kMaxQueued) {
    ++count_.dropped;
    ++num_unsaid_;
    return;
  }
  queue_.push_back(std::move(request));
  news_.notify_all();
}

void RequestLog::drop() {
  const std::scoped_lock lock(mutex_);
  ++count_.dropped;
  ++num_unsaid_;
}

RequestLog::Count RequestLog::count() const {
  const std::scoped_lock lock(mutex_);
  return count_;
}

std::string RequestLog::line_of(const EndedRequest& request) const {
  return form_ == Form::kJson ? json_line(request) : text_line(request);
}

std::string RequestLog::gap_of(int64_t num_lines) const {
  const auto now = std::chrono::system_clock::now();
  return form_ == Form::kJson ? json_gap(now, num_lines) : text_gap(now, num_lines);
}

void RequestLog::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    news_.wait(lock, [this] { return leaving_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const EndedRequest request = std::move(queue_.front());
    queue_.pop_front();
    const int64_t num_missing = num_unsaid_;
    lock.unlock();
    const bool is_gap_told = num_missing == 0 || write_line(gap_of(num_missing));
    const bool is_written = is_gap_told && write_line(line_of(request));
    lock.lock();
    if (is_gap_told) num_unsaid_ -= num_missing;
    ++(is_written ? count_.written : count_.dropped);
    if (!is_written) ++num_unsaid_;
    if (is_written || !has_no_time_left()) continue;
    count_.dropped += std::ssize(queue_);
    return queue_.clear();
  }
}

bool RequestLog::write_line(const std::string& line) {
  std::size_t num_written = 0;
  while (num_written < line.size()) {
    if (!wait_until_writable()) return false;
    const ssize_t count = ::write(fd_, line.data() + num_written, line.size() - num_written);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return give_up(errno);
    num_written += static_cast<std::size_t>(count);
  }
  has_complained_ = false;
  return true;
}

/// False if it is time to leave. A pipe that is writable takes a whole line, so that no write blocks.
bool RequestLog::wait_until_writable() {
  pollfd watched{.fd = fd_, .events = POLLOUT, .revents = 0};
  while (true) {
    const int num_ready = ::poll(&watched, 1, kPollMs);
    if (num_ready > 0) return true;
    if (is_late()) return false;
  }
}

bool RequestLog::is_late() const {
  const std::scoped_lock lock(mutex_);
  return has_no_time_left();
}

/// Needs mutex_.
bool RequestLog::has_no_time_left() const { return leaving_ && std::chrono::steady_clock::now() - *leaving_ > kLeaveTime; }

/// Tries again with the next line: a full disk may get room, a named pipe a new reader.
bool RequestLog::give_up(int error) {
  if (!std::exchange(has_complained_, true))
    std::fprintf(stderr, "ferry: the request log cannot be written and lines are dropped: %s\n", std::strerror(error));
  return false;
}

}  // namespace ferry
