#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/options/access_options.h"
#include "runtime/options/server_limits.h"

namespace CLI {
class App;
}

namespace ferry {

/// Where a coordinator's ports are, HOST:PORT each.
struct CoordinatorAddress {
  std::string http;
  std::string grpc;  // empty: it gets no calls over gRPC
};

/// One port before several coordinators: of `ferry front`, and of whoever else runs one (runtime/server/front/front.h).
struct FrontOptions {
  static constexpr std::size_t kMaxCoordinators = 64;

  std::vector<CoordinatorAddress> coordinators;  // 1 to kMaxCoordinators
  std::string http_address = "127.0.0.1:8000";   // "off": no HTTP
  std::string grpc_address = "127.0.0.1:50051";  // "off": no gRPC; so it is if no coordinator has an address for it
  double drain_timeout_s = 30;                   // for open calls to end when the front is stopped
  double lost_after_s = 10;                      // without an answer, until a coordinator's open calls are given up
  AccessOptions access;
  ServerLimits limits;  // those that begin with http_ or grpc_
};

void add_front_options(CLI::App& app, FrontOptions& options);

/// What no single option can tell. Empty if all is well.
std::string check_together(const FrontOptions& options);

}  // namespace ferry
