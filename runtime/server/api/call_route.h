#pragma once

#include <memory>
#include <string>

#include "runtime/server/api/api_context.h"
#include "runtime/server/api/api_task.h"

namespace ferry {
class HttpRouter;
}

namespace ferry::api {

/// Reads what a route's body asks for. Throws ApiError.
using TaskReader = std::unique_ptr<ApiTask> (*)(const HttpRequest& request, const EngineClient& engine, GrammarEngine& grammars,
                                                const ApiSettings& settings);

/// POST `path` becomes a call that wants tokens (ApiCall). `context` must outlive the server.
void add_call_route(HttpRouter& router, const std::string& path, ApiContext& context, TaskReader reader,
                    const ErrorForm& errors);

}  // namespace ferry::api
