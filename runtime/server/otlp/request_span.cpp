#include "runtime/server/otlp/request_span.h"

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int kServerKind = 2;   // SPAN_KIND_SERVER
constexpr int kErrorStatus = 2;  // STATUS_CODE_ERROR

ordered_json attribute(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
ordered_json attribute(const char* key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}
ordered_json attribute(const char* key, double value) { return {{"key", key}, {"value", {{"doubleValue", value}}}}; }

ordered_json attributes_of(const RequestSpan& span) {
  ordered_json list = {
      attribute("gen_ai.request.id", span.request_id),
      attribute("gen_ai.response.model", span.model),
      attribute("gen_ai.request.max_tokens", int64_t{span.max_tokens}),
      attribute("gen_ai.request.temperature", span.temperature),
      attribute("gen_ai.request.top_p", span.top_p),
      attribute("gen_ai.request.n", span.num_choices),
      attribute("gen_ai.usage.prompt_tokens", int64_t{span.prompt_tokens}),
      attribute("gen_ai.usage.completion_tokens", int64_t{span.completion_tokens}),
      attribute("gen_ai.usage.cached_tokens", int64_t{span.cached_tokens}),
      attribute("gen_ai.response.finish_reason", span.finish_reason),
      attribute("gen_ai.latency.e2e", span.total_s),
  };
  if (!span.first_token_s) return list;
  const double first_token = *span.first_token_s;
  list.push_back(attribute("gen_ai.latency.time_in_queue", span.queue_s));
  list.push_back(attribute("gen_ai.latency.time_to_first_token", first_token));
  list.push_back(attribute("gen_ai.latency.time_in_model_prefill", first_token - span.queue_s));
  list.push_back(attribute("gen_ai.latency.time_in_model_decode", span.total_s - first_token));
  list.push_back(attribute("gen_ai.latency.time_in_model_inference", span.total_s - span.queue_s));
  return list;
}

ordered_json span_json(const RequestSpan& span) {
  ordered_json json = {{"traceId", span.trace_id},
                       {"spanId", span.span_id},
                       {"name", "llm_request"},
                       {"kind", kServerKind},
                       {"startTimeUnixNano", std::to_string(span.start_ns)},
                       {"endTimeUnixNano", std::to_string(span.end_ns)},
                       {"attributes", attributes_of(span)}};
  if (!span.parent_id.empty()) json["parentSpanId"] = span.parent_id;
  if (!span.state.empty()) json["traceState"] = span.state;
  if (!span.error.empty()) json["status"] = {{"code", kErrorStatus}, {"message", span.error}};
  return json;
}

}  // namespace

std::string to_otlp_json(std::span<const RequestSpan> spans, const SpanSource& source) {
  ordered_json list = ordered_json::array();
  for (const RequestSpan& span : spans) list.push_back(span_json(span));
  const ordered_json scope = {{"name", "ferry"}, {"version", source.service_version}};
  const ordered_json resource = {{"attributes", ordered_json::array({attribute("service.name", source.service_name),
                                                                     attribute("service.version", source.service_version)})}};
  const ordered_json scope_spans = ordered_json::array({{{"scope", scope}, {"spans", std::move(list)}}});
  const ordered_json resource_spans = ordered_json::array({{{"resource", resource}, {"scopeSpans", scope_spans}}});
  return ordered_json{{"resourceSpans", resource_spans}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace ferry
