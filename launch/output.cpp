#include "launch/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/base/error.h"

namespace ferry {

void prepare_output() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    const int wrong_way = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", wrong_way) < 0) return;  // gets the lowest free number, which is this stream's
  }
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

void finish_output() {
  errno = 0;
  const bool was_lost = std::ferror(stdout) != 0;  // its reason is gone
  if (std::fflush(stdout) == 0 && !was_lost) return;
  const int error = errno;
  const std::string reason = error != 0 ? std::string(": ") + std::strerror(error) : "";
  throw Error(error == ENOSPC ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable,
              "cannot write the result to standard output" + reason);
}

}  // namespace ferry
