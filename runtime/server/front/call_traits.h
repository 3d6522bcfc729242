#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/server/http/message.h"

namespace ferry {

struct JsonLimits;

/// What a front can tell of a call that matters for where it goes. Hashes stand for what a client said.
struct CallTraits {
  std::optional<uint64_t> session{};   // calls of one session belong together
  std::optional<uint64_t> user{};      // who asks: several sessions may be one user's
  std::vector<uint64_t> beginnings{};  // of the prompt (PromptPieces)
};

/// The header or metadata that names a session before anything in a body does.
inline constexpr const char* kSessionHeader = "x-session-id";

/// Of names that clients give, each kind for itself.
uint64_t session_hash(std::string_view name);
uint64_t user_hash(std::string_view name);

/// Reads a request of OpenAI's or Anthropic's API, whose `head` need not hold its body, as far as it can be read: a body that
/// is no JSON, or beyond `limits`, has no traits beside its header's. Takes as long as parsing the body does.
CallTraits http_call_traits(const HttpRequest& head, std::string_view body, const JsonLimits& limits);

}  // namespace ferry
