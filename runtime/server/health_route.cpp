#include "runtime/server/health_route.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/server/http/router.h"

namespace ferry {
namespace {

std::string health_text(const Health& health) {
  if (health.missing.empty()) return "{}";
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const Health::MissingRank& missing : health.missing)
    workers.push_back({{"rank", missing.rank}, {"state", missing.state}, {"reason", missing.reason}});
  const nlohmann::ordered_json object{{"status", "DEGRADED"}, {"workers", std::move(workers)}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void add_health_route(HttpRouter& router, HealthProbe probe) {
  const auto answer = [probe = std::move(probe)](const HttpRequest&, HttpReply reply) {
    const Health health = probe();
    reply.send(health.complaint ? http_error(503, *health.complaint)
                                : HttpResponse{.status = 200, .body = health_text(health) + "\n"});
  };
  router.add("GET", "/health", {.handler = answer, .blocking = {}, .guard = HttpGuard::kOpen});
}

}  // namespace ferry
