#pragma once

#include <memory>
#include <string>

#include "runtime/load_progress.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/access.h"
#include "runtime/server/grpc_door.h"
#include "runtime/server/http/http_server.h"

namespace ferry {

/// The ports of `ferry serve` from its start on. HTTP answers 503 to all that it is asked (add_loading_routes), and gRPC closes
/// connections as they come, until the model is there.
struct OpenPorts {
  std::unique_ptr<HttpServer> http;  // null: HTTP is off
  std::unique_ptr<GrpcDoor> grpc;    // null: gRPC is off
};

struct PortAddresses {
  std::string http, grpc;  // HOST:PORT or "off"
};

/// HTTP reports `progress`. It and `access` outlive the ports. Throws Error{kFailedPrecondition} for a port that is in use.
OpenPorts open_ports(const PortAddresses& addresses, const ServerLimits& limits, const Access& access, HttpObserver observe,
                     const LoadProgress& progress);

}  // namespace ferry
