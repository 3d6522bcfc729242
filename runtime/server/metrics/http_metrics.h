#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/base/histogram.h"
#include "runtime/server/http/observer.h"

namespace ferry {

class MetricsText;

/// What the HTTP port was asked and what it answered. Any thread may call any method; it must outlive the server that it
/// observes.
class HttpMetrics {
 public:
  /// For HttpServerOptions. What only watches a server (/metrics, /health, /ping, /load, /version, /status.json, /) is not
  /// counted.
  HttpObserver observer() {
    return [this](const HttpAnswered& answered) { add(answered); };
  }
  void add(const HttpAnswered& answered);

  /// http_requests_total and http_request_duration_seconds, as prometheus-fastapi-instrumentator names and labels them.
  void write(MetricsText& text) const;

 private:
  using RouteAndMethod = std::pair<std::string, std::string>;

  mutable std::mutex mutex_;
  // Guarded by the mutex; routes, methods and classes of status are few:
  std::map<std::tuple<std::string, std::string, int>, int64_t> answers_;  // by route, method and hundreds of the status
  std::map<RouteAndMethod, Histogram> seconds_;
};

}  // namespace ferry
