#pragma once

namespace ferry {
class HttpRouter;
namespace api {
struct ApiContext;
}
}  // namespace ferry

namespace ferry::api::openai {

/// POST /v1/responses, and GET /v1/responses/ID, which never finds any, both also without /v1. `context` must outlive the
/// server.
void add_responses_routes(HttpRouter& router, ApiContext& context);

}  // namespace ferry::api::openai
