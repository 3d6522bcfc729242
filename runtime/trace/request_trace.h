#pragma once

#include <cstdint>

#include "profiler/tick_clock.h"
#include "runtime/schedule/step_plan.h"

namespace ferry {

/// Another number with every call, by which a request is known in the trace. Any thread.
uint32_t next_traced_request();

/// Writes the stages of requests into the trace: tokenize, queue, prefill, decode, when they were preempted, and the steps they
/// took part in. Neighbouring stages share a moment to the tick, so that a request's parts add up. Used by the engine's thread.
class RequestTrace {
 public:
  using TimePoint = Sequence::TimePoint;

  RequestTrace();

  /// It arrived (sequence.arrival), and was handed over at `queued`.
  void queued(Sequence& sequence, TimePoint queued);
  /// A step of this plan was computed from `begin` to `end`, its tokens were committed, and cut where an answer stops.
  void computed(const StepPlan& plan, uint64_t begin, uint64_t end);
  void finished(Sequence& sequence);

 private:
  void end_preemption(Sequence& sequence, uint64_t end);
  uint64_t ticks_of(TimePoint time);

  TickLine line_;
  TimePoint line_age_;
};

}  // namespace ferry
