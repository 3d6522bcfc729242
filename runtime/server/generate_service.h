#pragma once

#include <cstdint>
#include <memory>

#include "runtime/options/server_limits.h"
#include "runtime/server/access.h"
#include "runtime/server/engine_client.h"

namespace grpc {
class Service;
}

namespace ferry {

class Preparations;

/// Its fully qualified name, as health checks and reflection have it.
inline constexpr const char* kInferenceServiceName = "ferry.v1.Inference";

/// The ferry.v1.Inference service (proto/ferry/v1/inference.proto). `engine`, `keys` and `preparations` must outlive the
/// server that it is registered with.
///
/// It only translates: a call becomes a Request with the call's deadline, events become messages, an Error becomes a status, a
/// cancelled call becomes abort(). Nothing blocks a gRPC thread or the engine's: prompts are made by a pool of a few threads
/// with a bounded queue, and what the network has not taken yet of an answer waits in one message per call (see GenerateCall).
/// Messages of all open calls together hold at most limits.grpc_memory_bytes. Without a valid key (if there are keys) every
/// method is UNAUTHENTICATED.
std::shared_ptr<grpc::Service> make_generate_service(EngineClient& engine, const ServerLimits& limits, const ApiKeys& keys,
                                                     Preparations& preparations);

/// The most bytes that a request can have which the service would accept: what is longer need not be received.
int64_t longest_request(const EngineClient& engine, const ServerLimits& limits);

}  // namespace ferry
