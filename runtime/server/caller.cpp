#include "runtime/server/caller.h"

#include <grpcpp/server_context.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ferry {
namespace {

/// The first value of `name`, empty if there is none.
std::string_view metadata_of(const grpc::ServerContextBase& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

/// What may not come twice: which of them would count?
grpc::Status check_single(const grpc::ServerContextBase& context) {
  for (const char* name : {"authorization", "x-api-key"}) {
    if (context.client_metadata().count(name) > 1)
      return {grpc::StatusCode::INVALID_ARGUMENT, "metadata " + std::string(name) + " occurs twice; allowed: once"};
  }
  return {};
}

}  // namespace

Caller identify_caller(const grpc::ServerContextBase& context, const ApiKeys& keys) {
  if (keys.empty()) return {.status = {}, .owner = "connection " + context.peer(), .key = {}, .key_name = {}};
  if (grpc::Status status = check_single(context); !status.ok())
    return {.status = std::move(status), .owner = {}, .key = {}, .key_name = {}};
  const std::string_view key = presented_key(metadata_of(context, "authorization"), metadata_of(context, "x-api-key"));
  if (const std::optional<int> index = keys.find(key)) {
    const std::string owner = "key " + std::to_string(*index);
    return {.status = {}, .owner = owner, .key = owner, .key_name = keys.name(*index)};
  }
  return {.status = {grpc::StatusCode::UNAUTHENTICATED,
                     "this server needs an API key: metadata 'authorization: Bearer KEY' or 'x-api-key: KEY'"},
          .owner = {},
          .key = {},
          .key_name = {}};
}

std::optional<TraceContext> trace_context_of(const grpc::ServerContextBase& context) {
  return parse_trace_context(metadata_of(context, "traceparent"), metadata_of(context, "tracestate"));
}

}  // namespace ferry
