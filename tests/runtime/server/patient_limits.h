#pragma once

#include "runtime/options/server_limits.h"

namespace ferry::test {

inline constexpr double kNoLimitSeconds = 3600;  // a time-out that no test reaches

/// The limits of a server, but that it waits for its clients as long as a test may take.
inline ServerLimits patient_limits(ServerLimits limits = {}) {
  limits.http_header_s = limits.http_body_s = limits.http_write_s = limits.http_idle_s = kNoLimitSeconds;
  limits.grpc_idle_s = kNoLimitSeconds;
  return limits;
}

}  // namespace ferry::test
