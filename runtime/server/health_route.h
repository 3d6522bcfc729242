#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ferry {

class HttpRouter;

/// What health checks are answered with.
struct Health {
  /// A rank that does not answer while requests are served all the same.
  struct MissingRank {
    int32_t rank = 0;
    std::string state;   // "suspect" or "masked"
    std::string reason;  // of that
  };
  std::optional<std::string> complaint{};  // why the engine does not serve; nothing: it does
  std::vector<MissingRank> missing{};
};

/// Called on the I/O thread: must be quick and must not throw.
using HealthProbe = std::function<Health()>;

/// GET /health, for anybody: 200 {}; or, where others compute for ranks that are missing, 200 with
///   {"status": "DEGRADED", "workers": [{"rank": 2, "state": "masked", "reason": "…"}]}
/// or 503 {"error": reason}.
void add_health_route(HttpRouter& router, HealthProbe probe);

}  // namespace ferry
