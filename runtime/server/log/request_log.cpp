#include "runtime/server/log/request_log.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kPollMs = 50;  // between looks at whether it is time to leave

}  // namespace

/// The queue, and the thread that empties it.
class RequestLog::Writer {
 public:
  Writer(Form form, int fd) : form_(form), fd_(fd) {}

  void add(EndedRequest request);
  void drop();
  void leave();
  /// Returns false if run() has not returned by then.
  bool wait_until_done(SteadyClock::time_point limit);
  Count count() const;
  void run();

 private:
  struct Entry {
    EndedRequest request;
    int64_t num_missing = 0;  // lines that were dropped right before it
  };

  void write_all(std::unique_lock<std::mutex>& lock);
  void write_entry(std::unique_lock<std::mutex>& lock);
  bool write_gap(std::unique_lock<std::mutex>& lock, int64_t num_missing);
  bool write_line(std::string line);
  bool wait_until_writable();
  bool is_late() const;
  bool has_no_time_left() const;
  bool give_up(int error);
  std::string line_of(const EndedRequest& request) const;
  std::string gap_of(int64_t num_lines) const;

  const Form form_;
  const int fd_;
  mutable std::mutex mutex_;  // guards all up to is_done_
  std::condition_variable news_, done_;
  std::deque<Entry> queue_;
  Count count_;
  int64_t num_missing_ = 0;  // dropped lines behind the last entry
  std::optional<SteadyClock::time_point> leaving_;
  bool is_done_ = false;
  // The thread's own.
  int64_t num_failed_ = 0;       // lines that could not be written and that no line reports yet
  bool has_complained_ = false;  // that lines cannot be written
  bool ends_in_middle_ = false;  // the last line was cut
};

void RequestLog::Writer::add(EndedRequest request) {
  const std::scoped_lock lock(mutex_);
  if (queue_.size() >= kMaxQueued) {
    ++count_.dropped;
    ++num_missing_;
    return;
  }
  queue_.push_back({.request = std::move(request), .num_missing = num_missing_});
  num_missing_ = 0;
  news_.notify_all();
}

void RequestLog::Writer::drop() {
  const std::scoped_lock lock(mutex_);
  ++count_.dropped;
  ++num_missing_;
  news_.notify_all();
}

void RequestLog::Writer::leave() {
  const std::scoped_lock lock(mutex_);
  leaving_ = SteadyClock::now();
  news_.notify_all();
}

bool RequestLog::Writer::wait_until_done(SteadyClock::time_point limit) {
  std::unique_lock lock(mutex_);
  return done_.wait_until(lock, limit, [this] { return is_done_; });
}

RequestLog::Count RequestLog::Writer::count() const {
  const std::scoped_lock lock(mutex_);
  return count_;
}

std::string RequestLog::Writer::line_of(const EndedRequest& request) const {
  return form_ == Form::kJson ? json_line(request) : text_line(request);
}

std::string RequestLog::Writer::gap_of(int64_t num_lines) const {
  const auto now = std::chrono::system_clock::now();
  return form_ == Form::kJson ? json_gap(now, num_lines) : text_gap(now, num_lines);
}

void RequestLog::Writer::run() {
  std::unique_lock lock(mutex_);
  write_all(lock);
  count_.dropped += std::ssize(queue_);
  queue_.clear();
  is_done_ = true;
  done_.notify_all();
}

/// Returns when it is time to leave.
void RequestLog::Writer::write_all(std::unique_lock<std::mutex>& lock) {
  while (!has_no_time_left()) {
    news_.wait(lock, [this] { return leaving_ || !queue_.empty() || num_missing_ > 0; });
    if (!queue_.empty()) {
      write_entry(lock);
      continue;
    }
    if (num_missing_ > 0) static_cast<void>(write_gap(lock, std::exchange(num_missing_, 0)));
    if (leaving_ && queue_.empty()) return;
  }
}

/// The first of the queue.
void RequestLog::Writer::write_entry(std::unique_lock<std::mutex>& lock) {
  const Entry entry = std::move(queue_.front());
  queue_.pop_front();
  bool is_written = write_gap(lock, entry.num_missing);
  lock.unlock();
  is_written = is_written && write_line(line_of(entry.request));
  lock.lock();
  ++(is_written ? count_.written : count_.dropped);
  if (!is_written) ++num_failed_;
}

/// Also reports lines that could not be written before.
bool RequestLog::Writer::write_gap(std::unique_lock<std::mutex>& lock, int64_t num_missing) {
  num_failed_ += num_missing;
  if (num_failed_ == 0) return true;
  lock.unlock();
  const bool is_written = write_line(gap_of(num_failed_));
  lock.lock();
  if (is_written) num_failed_ = 0;
  return is_written;
}

bool RequestLog::Writer::write_line(std::string line) {
  if (ends_in_middle_) line.insert(0, 1, '\n');
  std::size_t num_written = 0;
  while (num_written < line.size()) {
    if (!wait_until_writable()) return false;
    const ssize_t count = ::write(fd_, line.data() + num_written, line.size() - num_written);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return give_up(errno);
    num_written += static_cast<std::size_t>(count);
    ends_in_middle_ = num_written < line.size();
  }
  has_complained_ = false;
  return true;
}

/// False if it is time to leave. A pipe that is writable takes a whole line. A terminal may take less and hold the thread.
bool RequestLog::Writer::wait_until_writable() {
  pollfd watched{.fd = fd_, .events = POLLOUT, .revents = 0};
  while (!is_late()) {
    if (::poll(&watched, 1, kPollMs) > 0) return true;
  }
  return false;
}

bool RequestLog::Writer::is_late() const {
  const std::scoped_lock lock(mutex_);
  return has_no_time_left();
}

/// Needs mutex_.
bool RequestLog::Writer::has_no_time_left() const { return leaving_ && SteadyClock::now() - *leaving_ > kLeaveTime; }

/// Tries again with the next line: a full disk may get room, a named pipe a new reader.
bool RequestLog::Writer::give_up(int error) {
  if (!std::exchange(has_complained_, true))
    std::fprintf(stderr, "ferry: the request log cannot be written and lines are dropped: %s\n", std::strerror(error));
  return false;
}

RequestLog::RequestLog(Form form, int fd)
    : writer_(std::make_shared<Writer>(form, fd)), thread_([writer = writer_] { writer->run(); }) {}

RequestLog::~RequestLog() {
  writer_->leave();
  if (writer_->wait_until_done(SteadyClock::now() + 2 * kLeaveTime)) {
    thread_.join();
  } else {
    thread_.detach();
  }
  if (const int64_t num_lost = writer_->count().dropped; num_lost > 0)
    std::fprintf(stderr, "ferry: lines of the request log that were dropped: %lld\n", static_cast<long long>(num_lost));
}

void RequestLog::add(EndedRequest request) { writer_->add(std::move(request)); }
void RequestLog::drop() { writer_->drop(); }
RequestLog::Count RequestLog::count() const { return writer_->count(); }

}  // namespace ferry
