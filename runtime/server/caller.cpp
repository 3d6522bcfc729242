#include "runtime/server/caller.h"

#include <grpcpp/server_context.h>

#include <optional>
#include <string_view>

namespace ferry {
namespace {

constexpr std::string_view kBearer = "bearer ";

std::string_view text_of(grpc::string_ref text) { return {text.data(), text.size()}; }

/// What follows "Bearer ", in whatever case that is written; empty if it is not there.
std::string_view bearer_of(std::string_view authorization) {
  if (authorization.size() <= kBearer.size()) return {};
  for (std::size_t i = 0; i < kBearer.size(); ++i) {
    const char c = authorization[i];
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower != kBearer[i]) return {};
  }
  return authorization.substr(kBearer.size());
}

/// The key that a call presents; empty if none. Of several only the first counts, so that nobody tries many at once.
std::string_view presented_key(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  if (const auto it = metadata.find("x-api-key"); it != metadata.end()) return text_of(it->second);
  if (const auto it = metadata.find("authorization"); it != metadata.end()) return bearer_of(text_of(it->second));
  return {};
}

}  // namespace

Caller identify_caller(const grpc::ServerContextBase& context, const ApiKeys& keys) {
  if (keys.empty()) return {.status = {}, .owner = "connection " + context.peer()};
  if (const std::optional<int> key = keys.find(presented_key(context)))
    return {.status = {}, .owner = "key " + std::to_string(*key)};
  return {.status = {grpc::StatusCode::UNAUTHENTICATED,
                     "this server needs an API key: metadata 'authorization: Bearer KEY' or 'x-api-key: KEY'"},
          .owner = {}};
}

}  // namespace ferry
