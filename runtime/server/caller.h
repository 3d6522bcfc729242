#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "runtime/server/access.h"

namespace grpc {
class ServerContextBase;
}

namespace ferry {

/// Who makes a gRPC call, as far as the server can tell.
struct Caller {
  grpc::Status status;  // UNAUTHENTICATED without a valid key where one is needed
  std::string owner;    // of the requests that it makes: its key, or else its connection
};

/// Looks for a key in the call's metadata: `authorization: Bearer KEY` or `x-api-key: KEY`. Without `keys` everybody may call.
/// Whoever shares a connection without a key, as behind a proxy, shares its requests.
Caller identify_caller(const grpc::ServerContextBase& context, const ApiKeys& keys);

}  // namespace ferry
