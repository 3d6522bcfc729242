#include "runtime/server/metrics/metrics_route.h"

#include <utility>

#include "runtime/server/http/router.h"
#include "runtime/server/metrics/engine_metrics.h"
#include "runtime/server/metrics/http_metrics.h"
#include "runtime/server/metrics/metrics_text.h"

namespace ferry {
namespace {

void write_rejections(const EngineReport& report, MetricsText& text) {
  text.begin("vllm:admission_rejections_total", MetricKind::kCounter, "Requests that were refused since too many waited.");
  text.add(static_cast<double>(report.stats.rejected), {{"reason", "max_num_queued_reqs"}});
  text.add(0, {{"reason", "max_num_queued_tokens"}});
}

}  // namespace

void add_metrics_route(HttpRouter& router, EngineReporter report, std::string model_name, const HttpMetrics& http) {
  const auto answer = [report = std::move(report), model_name = std::move(model_name), &http](const HttpRequest&,
                                                                                              HttpReply reply) {
    const EngineReport now = report();
    MetricsText text;
    text.set_labels({{"model_name", model_name}, {"engine", "0"}});
    write_engine_metrics(now, text);
    text.set_labels({{"model_name", model_name}});
    write_rejections(now, text);
    text.set_labels({});
    http.write(text);
    reply.send({.status = 200, .body = text.text(), .content_type = MetricsText::kContentType});
  };
  router.add("GET", "/metrics", {.handler = answer, .blocking = {}, .guard = HttpGuard::kNoKey});
}

}  // namespace ferry
