#include "runtime/server/api/call_route.h"

#include <utility>

#include "runtime/server/api/api_call.h"
#include "runtime/server/http/router.h"

namespace ferry::api {

void add_call_route(HttpRouter& router, const std::string& path, ApiContext& context, TaskReader reader,
                    const ErrorForm& errors) {
  const ReadTask read = [&context, reader](const HttpRequest& request) {
    return reader(request, context.engine, context.grammars, context.settings);
  };
  const auto handler = [&context, read, errors](HttpRequest request, HttpReply reply) {
    ApiCall::start(context, std::move(request), std::move(reply), read, errors);
  };
  router.add("POST", path, {.handler = handler, .blocking = {}, .reword = errors.reword});
}

}  // namespace ferry::api
