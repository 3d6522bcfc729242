#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace ferry {

namespace detail {

thread_local constinit CheckContext check_context;

CheckFailure::CheckFailure(const char* file, int line, const char* expression) {
  const CheckContext& at = ferry::check_context();
  message_ << file << ":" << line << " check failed: " << expression << " [rank " << at.rank << " step " << at.step << " layer "
           << at.layer << "] ";
}

CheckFailure::~CheckFailure() {
  message_ << '\n';
  const std::string text = message_.str();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace detail
}  // namespace ferry
