#include "runtime/server/library_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace ferry {
namespace {

LibraryLog& stderr_log() {
  static LibraryLog log(STDERR_FILENO, real_clock());
  return log;
}

void add_protobuf_line(google::protobuf::LogLevel level, const char*, int, const std::string& message) {
  if (level >= google::protobuf::LOGLEVEL_WARNING) stderr_log().add("protobuf", message);
}

void add_grpc_line(gpr_log_func_args* line) {
  if (line->severity >= GPR_LOG_SEVERITY_ERROR) stderr_log().add("grpc", line->message);
}

/// Returns whether a pipe has room for a line. A file takes the line or fails, and a terminal can hold the writer.
bool has_room(int fd) {
  pollfd watched{.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&watched, 1, 0) != 1 || (watched.revents & POLLOUT) == 0) return false;
  int num_unread = 0;
  return ioctl(fd, FIONREAD, &num_unread) != 0 || num_unread <= LibraryLog::kMaxUnreadBytes;
}

}  // namespace

void LibraryLog::add(std::string_view library, std::string_view text) {
  const std::scoped_lock lock(mutex_);
  if (const Clock::Time now = clock_.now(); now >= minute_ + std::chrono::minutes(1)) {
    minute_ = now;
    num_in_minute_ = 0;
  }
  if (num_in_minute_ >= kLinesPerMinute || !has_room(fd_)) {
    ++num_missing_;
    return;
  }
  ++num_in_minute_;
  std::string line = "ferry: " + std::string(library) + ": " + std::string(text.substr(0, kMaxLineBytes));
  std::ranges::replace_if(
      line, [](char letter) { return static_cast<unsigned char>(letter) < ' '; }, ' ');
  if (num_missing_ > 0) line += " (" + std::to_string(std::exchange(num_missing_, 0)) + " lines before this one were left out)";
  if (!write_line(line + "\n")) ++num_missing_;
}

bool LibraryLog::write_line(std::string_view line) const {
  return ::write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

void use_library_log() {
  google::protobuf::SetLogHandler(&add_protobuf_line);
  gpr_set_log_function(&add_grpc_line);
}

}  // namespace ferry
