#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include "runtime/server/front/coordinator_pool.h"
#include "runtime/server/front/front_mark.h"
#include "runtime/server/front/grpc_channels.h"

namespace ferry {

/// What relayed calls share. All of it must outlive them.
struct GrpcRelayContext {
  CoordinatorPool& pool;
  GrpcChannels& channels;
  const FrontMark& mark;
};

/// Passes one call on (grpc_proxy.h); the reactor destroys itself.
grpc::ServerGenericBidiReactor* relay_call(GrpcRelayContext& relays, grpc::GenericCallbackServerContext& context);

/// Sends the first message to all coordinators and answers with the answer of the one that had what was asked for, or else the
/// first that is no error, or else an error.
grpc::ServerGenericBidiReactor* relay_to_all(GrpcRelayContext& relays, grpc::GenericCallbackServerContext& context);

/// Ends the call.
grpc::ServerGenericBidiReactor* refuse_call(const grpc::Status& status);

}  // namespace ferry
