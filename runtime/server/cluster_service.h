#pragma once

#include <memory>

#include "runtime/server/access.h"

namespace grpc {
class Service;
}

namespace ferry {

class EngineClient;

/// The services ferry.v1.Cluster and ferry.v1.Experts (proto/ferry/v1/cluster.proto, experts.proto): what the engine tells of
/// its workers and experts, translated. Without a valid key (if there are keys) every method is UNAUTHENTICATED. `engine` and
/// `keys` must outlive the server that they are registered with.
std::shared_ptr<grpc::Service> make_cluster_service(const EngineClient& engine, const ApiKeys& keys);
std::shared_ptr<grpc::Service> make_experts_service(const EngineClient& engine, const ApiKeys& keys);

}  // namespace ferry
