#include "runtime/server/otlp/request_spans.h"

#include <charconv>
#include <chrono>
#include <memory>
#include <utility>

#include "runtime/base/random_id.h"

namespace ferry {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr std::size_t kSpanIdDigits = 16, kMaxErrorBytes = 512;

int64_t epoch_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// 0.7 of 0.7F, as the caller wrote it.
double as_written(float value) {
  char text[32];
  double number = 0;
  std::from_chars(text, std::to_chars(text, text + sizeof text, value).ptr, number);
  return number;
}

/// What is known before the request is handed over.
RequestSpan begin_span(const Request& request, const std::optional<TraceContext>& caller, const std::string& model_name) {
  RequestSpan span;
  span.trace_id = caller ? caller->trace_id : random_id();
  span.span_id = random_id().substr(0, kSpanIdDigits);
  if (caller) span.parent_id = caller->parent_id, span.state = caller->state;
  span.model = model_name;
  span.max_tokens = request.sampling.max_tokens;
  span.temperature = as_written(request.sampling.temperature);
  span.top_p = as_written(request.sampling.top_p);
  if (request.siblings != nullptr) span.num_choices = request.siblings->num_all;
  return span;
}

void end_span(RequestSpan& span, const GenerateEvent& last) {
  const RequestTimings& timings = last.timings;
  span.end_ns = epoch_ns();
  span.start_ns = span.end_ns - timings.total_ns;
  span.request_id = last.request_id;
  span.finish_reason = finish_reason_name(last.finish_reason);
  span.prompt_tokens = last.prompt_tokens;
  span.completion_tokens = last.completion_tokens;
  span.cached_tokens = last.cached_tokens;
  span.total_s = static_cast<double>(timings.total_ns) * kNanosecond;
  span.queue_s = static_cast<double>(timings.queue_ns) * kNanosecond;
  if (timings.first_token_ns > 0) span.first_token_s = static_cast<double>(timings.first_token_ns) * kNanosecond;
  if (last.error) span.error = std::string(last.error->what()).substr(0, kMaxErrorBytes);
}

}  // namespace

EventSink RequestSpans::observe(const Request& request, const std::optional<TraceContext>& caller, EventSink sink) {
  if (caller && !caller->is_sampled) return sink;
  auto span = std::make_shared<RequestSpan>(begin_span(request, caller, model_name_));
  return [this, span = std::move(span), sink = std::move(sink)](const GenerateEvent& event) {
    if (event.finish_reason != FinishReason::kNone) {
      end_span(*span, event);
      exporter_.add(std::move(*span));
    }
    sink(event);
  };
}

}  // namespace ferry
