#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ferry {

class HttpRouter;

/// Why the engine does not serve; nothing: it does. Called on the I/O thread: must be quick and must not throw.
using HealthProbe = std::function<std::optional<std::string>()>;

/// GET /health, for anybody: 200 {}, or 503 {"error": reason}.
void add_health_route(HttpRouter& router, HealthProbe probe);

}  // namespace ferry
