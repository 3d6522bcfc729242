#include "runtime/trace/request_trace.h"

#include <algorithm>
#include <atomic>

#include "profiler/span.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kLineLifetime{1};  // a line of ticks stays good to nanoseconds for so long

}  // namespace

uint32_t next_traced_request() {
  static std::atomic<uint32_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

RequestTrace::RequestTrace() : line_(recorder().ticks()), line_age_(std::chrono::steady_clock::now()) {}

uint64_t RequestTrace::ticks_of(TimePoint time) {
  const auto now = std::chrono::steady_clock::now();
  if (now - line_age_ > kLineLifetime) {
    line_ = recorder().ticks();
    line_age_ = now;
  }
  return to_ticks(line_, time);
}

void RequestTrace::queued(Sequence& sequence, TimePoint queued) {
  TracedStages& life = sequence.traced;
  life.number = next_traced_request();
  const uint64_t begin = ticks_of(sequence.arrival);
  life.queued = std::max(begin, ticks_of(queued));
  record_span(Zone::kRequestTokenize, begin, life.queued, life.number, static_cast<uint32_t>(sequence.num_prompt()));
}

void RequestTrace::computed(const StepPlan& plan, uint64_t begin, uint64_t end) {
  for (const StepEntry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    TracedStages& life = sequence.traced;
    end_preemption(sequence, begin);
    const auto prompt = static_cast<uint32_t>(sequence.num_prompt());
    if (life.scheduled == 0 && sequence.first_scheduled) {
      life.scheduled = std::max(life.queued, ticks_of(*sequence.first_scheduled));
      record_span(Zone::kRequestQueue, life.queued, life.scheduled, life.number, prompt);
    }
    if (entry.num_drafts > 0) {
      record_span(Zone::kRequestVerify, begin, end, life.number,
                  pack_verify(static_cast<uint32_t>(entry.num_drafts), static_cast<uint32_t>(entry.num_given_drafts())));
    } else {
      record_span(Zone::kRequestStep, begin, end, life.number, static_cast<uint32_t>(entry.num_rows));
    }
    if (life.first_token == 0 && sequence.first_token) {
      life.first_token = std::max(end, ticks_of(*sequence.first_token));
      record_span(Zone::kRequestPrefill, life.scheduled, life.first_token, life.number, prompt);
    }
  }
}

/// One that the trace does not know to be over was, at `end`.
void RequestTrace::end_preemption(Sequence& sequence, uint64_t end) {
  TracedStages& life = sequence.traced;
  if (life.num_preemptions == sequence.num_preemptions) return;
  life.num_preemptions = sequence.num_preemptions;
  const uint64_t begin = std::max(life.scheduled, ticks_of(*sequence.preempted));
  record_span(Zone::kRequestPreempted, begin, std::max(begin, end), life.number,
              static_cast<uint32_t>(sequence.num_generated()));
}

void RequestTrace::finished(Sequence& sequence) {
  const TracedStages& life = sequence.traced;
  if (!sequence.finished) return;
  const uint64_t end = std::max({life.queued, life.first_token, ticks_of(*sequence.finished)});
  end_preemption(sequence, end);
  if (life.first_token != 0)
    record_span(Zone::kRequestDecode, life.first_token, end, life.number, static_cast<uint32_t>(sequence.num_generated()));
  record_span(Zone::kRequestFinish, end, end, life.number, static_cast<uint32_t>(sequence.finish_reason));
}

}  // namespace ferry
