#pragma once

namespace ferry {
class HttpRouter;
namespace api {
struct ApiContext;
}
}  // namespace ferry

namespace ferry::api::anthropic {

/// POST /v1/messages and /v1/messages/count_tokens, also without /v1 (README.md says what is served). `context` must outlive
/// the server.
void add_message_routes(HttpRouter& router, ApiContext& context);

}  // namespace ferry::api::anthropic
