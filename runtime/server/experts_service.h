#pragma once

#include <cstdint>
#include <memory>

#include "runtime/server/access.h"

namespace grpc {
class Service;
}

namespace ferry {

class EngineClient;
class ExpertPlacement;

/// Its fully qualified name.
inline constexpr const char* kExpertsServiceName = "ferry.v1.Experts";

/// The service ferry.v1.Experts (proto/ferry/v1/experts.proto): where experts are, what was asked of them, and where they are
/// to be. Without a valid key (if there are keys) every method is UNAUTHENTICATED. `engine` and `keys` must outlive the server
/// that it is registered with.
std::shared_ptr<grpc::Service> make_experts_service(EngineClient& engine, const ApiKeys& keys);

/// Bytes of the longest placement that could be set in place of `placement`: every expert on every worker that there can be.
int64_t longest_placement(const ExpertPlacement& placement);

}  // namespace ferry
