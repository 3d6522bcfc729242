#include "runtime/server/noted_requests.h"

#include <algorithm>

namespace ferry {
namespace {

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

void take_least(std::optional<double>& least, double value) { least = std::min(least.value_or(value), value); }

/// `has_prompt`: its prompt is counted with this request, not with a sibling.
void note_event(RequestFigures& figures, const GenerateEvent& event, bool has_prompt) {
  figures.completion_tokens += std::ssize(event.token_ids);
  if (event.finish_reason == FinishReason::kNone) return;
  if (has_prompt) figures.cached_tokens += event.cached_tokens;
  if (figures.id.empty()) figures.id = event.request_id;
  if (event.timings.first_token_ns == 0) return;
  take_least(figures.queue_s, seconds_of(event.timings.queue_ns));
  take_least(figures.first_token_s, seconds_of(event.timings.first_token_ns));
}

/// The name of a call by those of its choices: "cmpl-1" by "cmpl-1-0" and "cmpl-1-1". `so_far` is the first choice's, or the
/// call's.
std::string common_id(const std::string& so_far, const std::string& next) {
  const bool has_it = next == so_far || next.starts_with(so_far + "-");
  return has_it ? so_far : so_far.substr(0, so_far.rfind('-'));
}

}  // namespace

EventSink NotedRequests::observe(const Request& request, EventSink sink) {
  if (note_ == nullptr) return sink;
  const Siblings* const siblings = request.siblings.get();
  const bool has_prompt = siblings == nullptr || siblings != last_siblings_;
  last_siblings_ = siblings;
  note_->change([&](RequestFigures& figures) {
    figures.id = figures.num_choices == 0 ? request.id : common_id(figures.id, request.id);
    ++figures.num_choices;
    if (has_prompt) figures.prompt_tokens += std::ssize(request.prompt);
  });
  return [note = note_, has_prompt, sink = std::move(sink)](const GenerateEvent& event) {
    note->change([&](RequestFigures& figures) { note_event(figures, event, has_prompt); });
    sink(event);
  };
}

}  // namespace ferry
