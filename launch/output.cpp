#include "launch/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/base/error.h"

namespace ferry {

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
