#pragma once

#include <memory>

#include "runtime/server/backend.h"

namespace grpc {
class Service;
}

namespace ferry {

/// Its fully qualified name, as health checks and reflection have it.
inline constexpr const char* kInferenceServiceName = "ferry.v1.Inference";

/// The ferry.v1.Inference service (proto/ferry/v1/inference.proto). `backend` must outlive the server that it is registered
/// with.
///
/// It only translates: a call becomes a Request with the call's deadline, events become messages, an Error becomes a status, a
/// cancelled call becomes abort(). Nothing blocks a gRPC thread or the engine's: events that the network has not taken yet wait
/// in a queue per call, which max_tokens bounds.
std::shared_ptr<grpc::Service> make_generate_service(Backend& backend);

}  // namespace ferry
