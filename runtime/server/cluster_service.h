#pragma once

#include <memory>

#include "runtime/server/access.h"

namespace grpc {
class Service;
}

namespace ferry {

class EngineClient;

/// Its fully qualified name.
inline constexpr const char* kClusterServiceName = "ferry.v1.Cluster";

/// The service ferry.v1.Cluster (proto/ferry/v1/cluster.proto): what the engine tells of its workers, translated. Without a
/// valid key (if there are keys) every method is UNAUTHENTICATED. `engine` and `keys` must outlive the server that it is
/// registered with.
std::shared_ptr<grpc::Service> make_cluster_service(const EngineClient& engine, const ApiKeys& keys);

}  // namespace ferry
