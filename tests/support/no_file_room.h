#pragma once

#include <sys/resource.h>

#include <csignal>

namespace ferry::test {

/// While it lives, no byte can be written to a file: writes fail with EFBIG. One at a time, and no other thread may write.
class NoFileRoom {
 public:
  NoFileRoom() : former_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit none{.rlim_cur = 0, .rlim_max = former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoFileRoom() {
    ::setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, former_handler_);
  }
  NoFileRoom(const NoFileRoom&) = delete;
  NoFileRoom& operator=(const NoFileRoom&) = delete;

 private:
  void (*former_handler_)(int);
  rlimit former_{};
};

}  // namespace ferry::test
