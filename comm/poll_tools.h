#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string>

#include "comm/op.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

/// Wakes a poll() that has fd() among its descriptors, with POLLIN. Any thread may ring it.
class Bell {
 public:
  Bell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_.get() < 0)
      throw Error(ErrorCode::kResourceExhausted, std::string("cannot make an eventfd: ") + std::strerror(errno));
  }
  void ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));  // fails when it has rung 2^64 times
  }
  void silence() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof(count));  // fails when it has not rung
  }
  int fd() const { return fd_.get(); }

 private:
  const FileDescriptor fd_;
};

/// poll() until `deadline`, to the nanosecond as far as the system's timers go, or for a quarter of an hour if that is sooner.
inline int poll_until(std::span<pollfd> polled, Deadline deadline) {
  using std::chrono::nanoseconds;
  constexpr nanoseconds kMost = std::chrono::minutes(15);
  const nanoseconds left = std::clamp<nanoseconds>(deadline - std::chrono::steady_clock::now(), nanoseconds(0), kMost);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
  return ppoll(polled.data(), polled.size(), &time, nullptr);
}

}  // namespace ferry
