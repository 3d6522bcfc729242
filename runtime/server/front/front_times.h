#pragma once

#include <chrono>

namespace ferry {

/// Periods and deadlines of a front that have no option.
struct FrontTimes {
  std::chrono::milliseconds probe_period{1000};  // between looks at the coordinators
  std::chrono::milliseconds grpc_connect{2000};  // for a connection to a coordinator's gRPC port to stand
  std::chrono::milliseconds broadcast{5000};     // for the answers to a call that goes to all coordinators
};

}  // namespace ferry
