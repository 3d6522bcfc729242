#include "runtime/base/step_back.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ferry {

void step_back() {
  constexpr int kNice = 10;
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  setpriority(PRIO_PROCESS, thread, kNice);  // of a thread, on Linux
}

}  // namespace ferry
