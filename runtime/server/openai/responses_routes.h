#pragma once

namespace ferry {
class HttpRouter;
}

namespace ferry::openai {

struct ApiContext;

/// POST /v1/responses, and GET /v1/responses/ID, which never finds any, both also without /v1. `context` must outlive the
/// server.
void add_responses_routes(HttpRouter& router, ApiContext& context);

}  // namespace ferry::openai
