#pragma once

#include <atomic>

#include "runtime/server/front/coordinator_pool.h"
#include "runtime/server/front/front_mark.h"
#include "runtime/server/metrics/http_metrics.h"

namespace ferry {

class HttpRouter;

/// GET /health and GET, POST /ping (200 while a coordinator serves and the front does not drain), GET /metrics, /version and
/// /load: what a front says itself, and to itself 508. POST /start_profile and /stop_profile, which are a coordinator's own,
/// are answered with 501. All of it must outlive the HTTP server.
void add_front_routes(HttpRouter& router, const CoordinatorPool& pool, const HttpMetrics& http,
                      const std::atomic<bool>& is_draining, const FrontMark& mark);

}  // namespace ferry
