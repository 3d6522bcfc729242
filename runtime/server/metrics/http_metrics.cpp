#include "runtime/server/metrics/http_metrics.h"

#include "runtime/server/metrics/metrics_text.h"

namespace ferry {

void HttpMetrics::add(const HttpAnswered& answered) {
  if (answered.status == 0 || only_watches(answered.route)) return;
  const std::string route(answered.route), method(answered.method);
  const std::scoped_lock lock(mutex_);
  ++answers_[{route, method, answered.status / 100}];
  const Histogram empty({0.1, 0.5, 1});
  seconds_.try_emplace({route, method}, empty).first->second.observe(answered.seconds);
}

void HttpMetrics::write(MetricsText& text) const {
  const std::scoped_lock lock(mutex_);
  text.begin("http_requests_total", MetricKind::kCounter, "Total number of requests by method, status and handler.");
  for (const auto& [key, count] : answers_) {
    const auto& [route, method, hundreds] = key;
    text.add(static_cast<double>(count), {{"handler", route}, {"method", method}, {"status", std::to_string(hundreds) + "xx"}});
  }
  text.begin("http_request_duration_seconds", MetricKind::kHistogram,
             "Seconds from a request's head to its answer's end, by method and handler.");
  for (const auto& [key, seconds] : seconds_) text.add(seconds, {{"handler", key.first}, {"method", key.second}});
}

}  // namespace ferry
