#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ferry {

/// The life of a request for OpenTelemetry: one span "llm_request", with the attributes that vLLM gives it (tracing/utils.py).
struct RequestSpan {
  std::string trace_id, span_id, parent_id;  // hexadecimal; parent_id may be empty
  std::string state;                         // tracestate of the caller
  int64_t start_ns = 0, end_ns = 0;          // since 1970

  std::string request_id, model, finish_reason;
  int32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, max_tokens = 0;
  double temperature = 0, top_p = 1;
  int64_t num_choices = 1;              // that were asked for together
  double queue_s = 0, total_s = 0;      // arrival to admission, and to the end
  std::optional<double> first_token_s;  // arrival to the first token; absent: it never had one
  std::string error;                    // of one that failed
};

/// The process that the spans are of.
struct SpanSource {
  std::string service_name, service_version;
};

/// ExportTraceServiceRequest in OTLP's JSON (opentelemetry-proto, trace/v1/trace.proto; ids are hexadecimal there, and 64-bit
/// numbers are texts).
std::string to_otlp_json(std::span<const RequestSpan> spans, const SpanSource& source);

}  // namespace ferry
