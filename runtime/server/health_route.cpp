#include "runtime/server/health_route.h"

#include <utility>

#include "runtime/server/http/router.h"

namespace ferry {

void add_health_route(HttpRouter& router, HealthProbe probe) {
  const auto answer = [probe = std::move(probe)](const HttpRequest&, HttpReply reply) {
    const std::optional<std::string> reason = probe();
    reply.send(reason ? http_error(503, *reason) : HttpResponse{.status = 200, .body = "{}\n"});
  };
  router.add("GET", "/health", {.handler = answer, .blocking = {}, .guard = HttpGuard::kOpen});
}

}  // namespace ferry
