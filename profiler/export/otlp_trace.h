#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Spans of one message at most.
inline constexpr std::size_t kOtlpBatch = 512;

/// A capture's run, steps and requests as spans of OpenTelemetry: `send` gets one ExportTraceServiceRequest after the other in
/// OTLP's JSON, each one line, and how many spans it has (opentelemetry-proto, trace/v1/trace.proto; ids are hexadecimal there,
/// and 64-bit numbers are texts). All are of one trace. A request's span has its stages below it, and links to the steps that
/// computed rows of it.
void export_otlp(const ReportInput& input, const std::function<void(const std::string& json, int64_t num_spans)>& send);

}  // namespace ferry
