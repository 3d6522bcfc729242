#include "runtime/server/front/front_routes.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runtime/server/front/front_metrics.h"
#include "runtime/server/http/router.h"
#include "runtime/server/metrics/metrics_text.h"
#include "runtime/version.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

std::string dumped(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// {} where all serve, else who does not and why, in the form in which a coordinator tells of its workers.
std::string health_body(const PoolReport& report) {
  ordered_json missing = ordered_json::array();
  for (const PoolReport::Coordinator& each : report.coordinators) {
    if (each.state == CoordinatorState::kServing) continue;
    missing.push_back(
        {{"coordinator", each.address.http}, {"state", coordinator_state_name(each.state)}, {"reason", each.reason}});
  }
  if (missing.empty()) return "{}\n";
  return dumped({{"status", "DEGRADED"}, {"coordinators", std::move(missing)}});
}

HttpResponse health(const CoordinatorPool& pool, bool is_draining) {
  const PoolReport report = pool.report();
  if (is_draining) return http_error(503, "the front drains");
  if (report.num_serving() == 0) {
    const PoolReport::Coordinator& first = report.coordinators.front();
    return http_error(503, "no coordinator serves; " + first.address.http + ": " + first.reason);
  }
  return {.status = 200, .body = health_body(report)};
}

HttpResponse metrics(const CoordinatorPool& pool, const HttpMetrics& http) {
  MetricsText text;
  write_front_metrics(pool.report(), text);
  http.write(text);
  return {.status = 200, .body = text.text(), .content_type = MetricsText::kContentType};
}

}  // namespace

void add_front_routes(HttpRouter& router, const CoordinatorPool& pool, const HttpMetrics& http,
                      const std::atomic<bool>& is_draining, const FrontMark& mark) {
  const auto add = [&](const char* method, const char* path, HttpGuard guard, auto answer) {
    const auto handler = [&mark, answer](const HttpRequest& request, HttpReply reply) {
      reply.send(mark.is_on(request.headers) ? http_error(kLoopDetected, kLoopMessage) : answer());
    };
    router.add(method, path, {.handler = handler, .blocking = {}, .guard = guard});
  };
  const auto tell_health = [&] { return health(pool, is_draining); };
  add("GET", "/health", HttpGuard::kOpen, tell_health);
  for (const char* method : {"GET", "POST"}) {
    add(method, "/ping", HttpGuard::kOpen, [&] {
      HttpResponse response = health(pool, is_draining);
      return response.status == 200 ? HttpResponse{.status = 200, .body = "", .content_type = ""} : response;
    });
  }
  add("GET", "/metrics", HttpGuard::kNoKey, [&] { return metrics(pool, http); });
  add("GET", "/version", HttpGuard::kGuarded, [] {
    return HttpResponse{.status = 200, .body = dumped({{"version", version_number()}})};
  });
  add("GET", "/load", HttpGuard::kGuarded, [&] {
    return HttpResponse{.status = 200, .body = dumped({{"server_load", pool.report().num_open()}})};
  });
  for (const char* path : {"/start_profile", "/stop_profile"})
    add("POST", path, HttpGuard::kGuarded, [] { return http_error(501, "captures are a coordinator's own: ask at its port"); });
}

}  // namespace ferry
