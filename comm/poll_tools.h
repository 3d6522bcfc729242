#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
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

/// For poll(): until `deadline`, rounded up, at most a quarter of an hour.
inline int millis_left(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000 * 1000));
}

}  // namespace ferry
