#include "runtime/trace/request_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "profiler/recorder.h"

namespace ferry {
namespace {

/// The spans of one zone that `work` records on a thread of its own.
template <class Work>
std::vector<SpanRecord> spans_of(Zone zone, Work work) {
  recorder().start({.level = TraceLevel::kSteps});
  std::thread([&] {
    recorder().register_thread("request trace");
    work();
  }).join();
  const RankCapture capture = recorder().stop();
  std::vector<SpanRecord> spans;
  for (const ThreadCapture& thread : capture.threads) {
    if (thread.name != "request trace") continue;
    std::ranges::copy_if(thread.records, std::back_inserter(spans), [&](const SpanRecord& span) { return span.zone == zone; });
  }
  return spans;
}

/// A sequence that decodes and was preempted `before` now.
Sequence preempted_sequence(std::chrono::milliseconds before) {
  const auto now = std::chrono::steady_clock::now();
  Sequence sequence;
  sequence.request.prompt = {1, 2, 3};
  sequence.tokens = {1, 2, 3, 4, 5};
  sequence.num_computed = 4;
  sequence.arrival = now - std::chrono::seconds(2);
  sequence.first_scheduled = sequence.first_token = now - std::chrono::seconds(1);
  sequence.preempted = now - before;
  sequence.num_preemptions = 1;
  return sequence;
}

TEST(RequestTrace, APreemptionLastsUntilTheStepInWhichTheRequestGoesOn) {
  constexpr std::chrono::milliseconds kBefore{300};
  uint64_t begin = 0;
  const auto spans = spans_of(Zone::kRequestPreempted, [&] {
    RequestTrace trace;
    Sequence sequence = preempted_sequence(kBefore);
    trace.queued(sequence, sequence.arrival);
    StepPlan plan;
    plan.entries.push_back({.sequence = &sequence, .num_rows = 1, .is_decode = true});
    begin = now_ticks();
    for (int step = 0; step < 3; ++step) trace.computed(plan, begin, now_ticks());
    sequence.finished = std::chrono::steady_clock::now();
    trace.finished(sequence);
  });
  ASSERT_EQ(spans.size(), 1U) << "told once";
  EXPECT_EQ(spans[0].end, begin);
  EXPECT_LT(spans[0].begin, begin);
  EXPECT_EQ(spans[0].b, 2U) << "tokens that it had by then";
}

TEST(RequestTrace, APreemptionMayLastUntilTheEnd) {
  const auto spans = spans_of(Zone::kRequestPreempted, [&] {
    RequestTrace trace;
    Sequence sequence = preempted_sequence(std::chrono::milliseconds(300));
    trace.queued(sequence, sequence.arrival);
    sequence.finished = std::chrono::steady_clock::now();
    trace.finished(sequence);
  });
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_LT(spans[0].begin, spans[0].end);
}

}  // namespace
}  // namespace ferry
