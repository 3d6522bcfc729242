#include "runtime/server/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace ferry {
namespace {

constexpr rlim_t kEnough = 1 << 16;  // more only makes programs slow that walk over all descriptors
constexpr int64_t kReserved = 256;   // weights, links between ranks, listeners, captures that are being written

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &limit);  // if it fails the old limit holds, and affordable_connections() goes by it
}

int64_t affordable_connections(int64_t wanted, int64_t num_descriptors) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return wanted;
  const int64_t all = static_cast<int64_t>(limit.rlim_cur);
  const int64_t reserved = std::min(kReserved, all / 2);
  return std::clamp((all - reserved) / 2 / num_descriptors, int64_t{1}, wanted);
}

}  // namespace ferry
