#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "runtime/server/access.h"
#include "runtime/server/otlp/trace_context.h"

namespace grpc {
class ServerContextBase;
}

namespace ferry {

/// Who makes a gRPC call, as far as the server can tell.
struct Caller {
  grpc::Status status;     // where a key is needed: UNAUTHENTICATED without a valid one, INVALID_ARGUMENT for one given twice
  std::string owner;       // of the requests that it makes: its key, or else its connection
  std::string key;         // PromptStep's: empty without keys, so callers cannot have more shares by more connections
  std::string key_name{};  // what a log calls its key (ApiKeys::name), empty without keys
};

/// Looks for a key in the call's metadata: `authorization: Bearer KEY` or `x-api-key: KEY`. Without `keys` everybody may call.
/// Whoever shares a connection without a key, as behind a proxy, shares its requests.
Caller identify_caller(const grpc::ServerContextBase& context, const ApiKeys& keys);

/// What the call's metadata says of the work that it is part of: traceparent, tracestate.
std::optional<TraceContext> trace_context_of(const grpc::ServerContextBase& context);

}  // namespace ferry
