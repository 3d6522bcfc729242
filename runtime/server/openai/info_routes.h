#pragma once

#include "runtime/server/api/api_context.h"

namespace ferry {
class HttpRouter;
}

namespace ferry::api::openai {

/// GET /v1/models and one of them, /version, /load; GET and POST /ping, for anybody. `context` must outlive the server.
void add_info_routes(HttpRouter& router, ApiContext& context);

}  // namespace ferry::api::openai
