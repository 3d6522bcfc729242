#pragma once

#include <memory>

#include "runtime/server/access.h"

namespace grpc {
class Service;
}

namespace ferry {

struct GenerateContext;

/// Its fully qualified name, as health checks and reflection have it.
inline constexpr const char* kInferenceServiceName = "ferry.v1.Inference";

/// The ferry.v1.Inference service (proto/ferry/v1/inference.proto). `shared` and `keys` must outlive the server that it is
/// registered with.
///
/// It only translates: a call becomes a Request with the call's deadline, events become messages, an Error becomes a status, a
/// cancelled call becomes abort(). Nothing blocks a gRPC thread or the engine's: prompts are made by a pool of a few threads
/// with a bounded queue, and what the network has not taken yet of an answer waits in one message per call (see GenerateCall).
/// Messages of all open calls together hold at most limits.grpc_memory_bytes. Without a valid key (if there are keys) every
/// method is UNAUTHENTICATED.
std::shared_ptr<grpc::Service> make_generate_service(GenerateContext& shared, const ApiKeys& keys);

}  // namespace ferry
