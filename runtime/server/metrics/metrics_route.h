#pragma once

#include <functional>
#include <string>

namespace ferry {

class HttpMetrics;
class HttpRouter;
struct EngineReport;

/// What the engine tells now. Called on the I/O thread: must be quick.
using EngineReporter = std::function<EngineReport()>;

/// GET /metrics, without a key: what Prometheus reads. `model_name` is a label of all that is the engine's. `http` must outlive
/// the server.
void add_metrics_route(HttpRouter& router, EngineReporter report, std::string model_name, const HttpMetrics& http);

}  // namespace ferry
