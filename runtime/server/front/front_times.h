#pragma once

#include <chrono>

#include "runtime/base/timeout_factor.h"

namespace ferry {

/// Periods and deadlines of a front that have no option. gRPC's are in real time, whatever the front's clock says.
struct FrontTimes {
  std::chrono::milliseconds probe_period{1000};  // between looks at the coordinators, by the front's clock
  std::chrono::milliseconds look = scaled_timeout(std::chrono::seconds(1));  // for an answer to one, by that clock
  std::chrono::milliseconds grpc_connect =
      scaled_timeout(std::chrono::seconds(2));  // for a connection to a coordinator's gRPC port to stand
  std::chrono::milliseconds broadcast =
      scaled_timeout(std::chrono::seconds(5));  // for the answers to a call that goes to all coordinators
};

}  // namespace ferry
