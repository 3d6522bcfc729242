#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/coordinator.h"
#include "runtime/server/otlp/span_exporter.h"
#include "runtime/server/otlp/trace_context.h"

namespace ferry {

/// Makes a span of each request that ends, whichever port it came by. Any thread may call.
class RequestSpans {
 public:
  /// `exporter` outlives the requests.
  RequestSpans(SpanExporter& exporter, std::string model_name) : exporter_(exporter), model_name_(std::move(model_name)) {}

  /// `sink`, which also tells the exporter when `request` has ended. A caller who does not record its part (traceparent's flag)
  /// gets none recorded, as OpenTelemetry's default sampler has it.
  EventSink observe(const Request& request, const std::optional<TraceContext>& caller, EventSink sink);

 private:
  SpanExporter& exporter_;
  const std::string model_name_;
};

}  // namespace ferry
