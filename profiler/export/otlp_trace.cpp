#include "profiler/export/otlp_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int kInternalKind = 1, kServerKind = 2;  // SPAN_KIND_…

/// What a span is of; makes ids of different kinds different.
enum class SpanOf : uint8_t { kRun = 1, kStep = 2, kRequest = 3, kStage = 4 };

std::string hexadecimal(uint64_t number) {
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, number >>= 4) *digit = "0123456789abcdef"[number & 15];
  return text;
}

std::string span_id(SpanOf kind, uint64_t number) { return hexadecimal(static_cast<uint64_t>(kind) << 56 | number); }

ordered_json attribute(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
ordered_json attribute(const char* key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

class CaptureSpans {
 public:
  CaptureSpans(const ReportInput& input, const std::function<void(const std::string& json, int64_t num_spans)>& send)
      : input_(input), send_(send), steps_(input.timeline), trace_id_(trace_id_of(input.capture)) {}

  void write() {
    const CaptureInfo& info = input_.capture.info;
    add(span("ferry", kInternalKind, span_id(SpanOf::kRun, 0), "", {input_.timeline.begin_ns, input_.timeline.end_ns},
             {attribute("ferry.command", info.command), attribute("ferry.transport", info.transport),
              attribute("ferry.world_size", int64_t{info.world_size})}));
    for (std::size_t i = 0; i < input_.timeline.steps.size(); ++i) write_step(i);
    for (std::size_t i = 0; i < input_.timeline.requests.size(); ++i) write_request(i);
    flush();
  }

 private:
  /// The same for the same capture, so that it may be sent twice.
  static std::string trace_id_of(const Capture& capture) {
    uint64_t hash = 14695981039346656037U;  // FNV-1a
    for (const char c : capture.info.command + capture.info.model.name)
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    return hexadecimal(hash | 1) + hexadecimal(static_cast<uint64_t>(capture.info.start_epoch_ns));
  }

  std::string epoch(int64_t ns) const { return std::to_string(input_.capture.info.start_epoch_ns + ns); }

  ordered_json span(const std::string& name, int kind, const std::string& id, const std::string& parent, Interval when,
                    ordered_json::array_t attributes) const {
    ordered_json result = {{"traceId", trace_id_},
                           {"spanId", id},
                           {"name", name},
                           {"kind", kind},
                           {"startTimeUnixNano", epoch(when.begin)},
                           {"endTimeUnixNano", epoch(std::max(when.begin, when.end))},
                           {"attributes", std::move(attributes)}};
    if (!parent.empty()) result["parentSpanId"] = parent;
    return result;
  }

  void write_step(std::size_t i) {
    const StepInfo& step = input_.timeline.steps[i];
    add(span(step.name(), kInternalKind, span_id(SpanOf::kStep, i), span_id(SpanOf::kRun, 0), {step.begin_ns, step.end_ns},
             {attribute("ferry.step", int64_t{step.step}), attribute("ferry.phase", std::string(phase_name(step.phase))),
              attribute("ferry.tokens", step.num_tokens), attribute("ferry.sequences", step.num_sequences)}));
  }

  void write_request(std::size_t i) {
    const RequestInfo& request = input_.timeline.requests[i];
    const Timeline& timeline = input_.timeline;
    const auto first_known = [&](std::initializer_list<std::optional<int64_t>> times) {
      for (const auto& time : times) {
        if (time) return *time;
      }
      return timeline.begin_ns;
    };
    const int64_t begin_ns =
        first_known({request.arrival_ns, request.queued_ns, request.first_scheduled_ns, request.first_token_ns});
    const int64_t end_ns = request.finished_ns.value_or(timeline.end_ns);
    const std::string id = span_id(SpanOf::kRequest, i);
    ordered_json json = span("llm_request", kServerKind, id, span_id(SpanOf::kRun, 0), {begin_ns, end_ns},
                             {attribute("gen_ai.request.id", std::to_string(request.request)),
                              attribute("gen_ai.response.model", input_.capture.info.model.name),
                              attribute("gen_ai.usage.prompt_tokens", request.num_prompt),
                              attribute("gen_ai.usage.completion_tokens", request.num_generated),
                              attribute("gen_ai.response.finish_reason", request.finish_reason)});
    ordered_json links = ordered_json::array();
    for (const uint32_t number : request.steps) {
      const int32_t step = steps_.find(number);
      if (step < 0) continue;
      links.push_back({{"traceId", trace_id_}, {"spanId", span_id(SpanOf::kStep, static_cast<uint64_t>(step))}});
    }
    if (!links.empty()) json["links"] = std::move(links);
    add(std::move(json));
    write_stages(request, i, id, end_ns);
  }

  /// Those whose begin and end the capture saw; the last lasts as long as the request.
  void write_stages(const RequestInfo& request, std::size_t i, const std::string& parent, int64_t end_ns) {
    const std::pair<const char*, std::optional<int64_t>> begins[] = {
        {"queue", request.queued_ns}, {"prefill", request.first_scheduled_ns}, {"decode", request.first_token_ns}};
    for (std::size_t s = 0; s < std::size(begins); ++s) {
      const std::optional<int64_t> begin = begins[s].second;
      const std::optional<int64_t> end = s + 1 < std::size(begins) ? begins[s + 1].second : end_ns;
      if (!begin || !end) continue;
      add(span(begins[s].first, kInternalKind, span_id(SpanOf::kStage, i * std::size(begins) + s), parent, {*begin, *end}, {}));
    }
  }

  void add(ordered_json span) {
    spans_.push_back(std::move(span));
    if (spans_.size() == kOtlpBatch) flush();
  }

  void flush() {
    if (spans_.empty()) return;
    const std::string& version = input_.capture.info.version;
    const int64_t num_spans = std::ssize(spans_);
    const ordered_json scope = {{"name", "ferry"}, {"version", version}};
    const ordered_json resource = {{"attributes", ordered_json::array({attribute("service.name", std::string("ferry")),
                                                                       attribute("service.version", version)})}};
    ordered_json scope_spans = {{"scope", scope}, {"spans", std::exchange(spans_, {})}};
    ordered_json resource_spans = {{"resource", resource}, {"scopeSpans", ordered_json::array({std::move(scope_spans)})}};
    const ordered_json message = {{"resourceSpans", ordered_json::array({std::move(resource_spans)})}};
    send_(message.dump(-1, ' ', false, ordered_json::error_handler_t::replace), num_spans);
  }

  const ReportInput& input_;
  const std::function<void(const std::string& json, int64_t num_spans)>& send_;
  const StepIndex steps_;
  const std::string trace_id_;
  ordered_json::array_t spans_;
};

}  // namespace

void export_otlp(const ReportInput& input, const std::function<void(const std::string& json, int64_t num_spans)>& send) {
  CaptureSpans(input, send).write();
}

}  // namespace ferry
