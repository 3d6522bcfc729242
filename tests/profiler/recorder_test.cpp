#include "profiler/recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "profiler/span.h"
#include "runtime/base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/no_threads.h"

namespace ferry {
namespace {

/// The spans of the thread of that name.
const ThreadCapture* thread_named(const RankCapture& capture, const std::string& name) {
  for (const ThreadCapture& thread : capture.threads) {
    if (thread.name == name) return &thread;
  }
  return nullptr;
}

class RecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    recorder().register_thread("test");
    check_context() = {.rank = 0, .step = 7, .layer = 3};
  }
  void TearDown() override {
    if (recorder().is_capturing()) recorder().stop();
    recorder().set_idle_level(TraceLevel::kOff);
    check_context() = {};
  }
};

TEST_F(RecorderTest, SpansCarryWhereAndWhen) {
  recorder().start({.level = TraceLevel::kOperators});
  const uint64_t before = now_ticks();
  { const Span span(Zone::kRouter, 11, 22); }
  const uint64_t after = now_ticks();
  const RankCapture capture = recorder().stop();
  const ThreadCapture* thread = thread_named(capture, "test");
  ASSERT_NE(thread, nullptr);
  ASSERT_EQ(thread->records.size(), 1U);
  const SpanRecord& record = thread->records[0];
  EXPECT_EQ(record.zone, Zone::kRouter);
  EXPECT_EQ(record.step, 7U);
  EXPECT_EQ(record.layer, 3);
  EXPECT_EQ(record.a, 11U);
  EXPECT_EQ(record.b, 22U);
  EXPECT_LE(before, record.begin);
  EXPECT_LE(record.begin, record.end);
  EXPECT_LE(record.end, after);
  EXPECT_LE(capture.begin, record.begin);
  EXPECT_GE(capture.end, record.end);
  EXPECT_GT(capture.span_cost_ns, 0);
  EXPECT_EQ(thread->num_lost, 0U);
}

TEST_F(RecorderTest, LevelsDecideWhatIsRecorded) {
  for (const TraceLevel level : {TraceLevel::kSteps, TraceLevel::kOperators, TraceLevel::kThreads}) {
    recorder().start({.level = level});
    { const Span span(Zone::kStep); }      // level 0
    { const Span span(Zone::kRouter); }    // level 1
    { const Span span(Zone::kPoolTask); }  // level 2
    EXPECT_EQ(thread_named(recorder().stop(), "test")->records.size(), static_cast<std::size_t>(level) + 1);
  }
  { const Span span(Zone::kStep); }  // nothing runs and the idle level is off
  recorder().start({});
  EXPECT_TRUE(thread_named(recorder().stop(), "test")->records.empty());
}

TEST_F(RecorderTest, RefusesASecondStartAndAStopWithoutOne) {
  EXPECT_THROW(recorder().stop(), Error);
  recorder().start({});
  EXPECT_THROW(recorder().start({}), Error);
  { const Span span(Zone::kStep); }
  EXPECT_EQ(thread_named(recorder().stop(), "test")->records.size(), 1U) << "the refused start did no harm";
}

TEST_F(RecorderTest, WithoutAThreadForItNoCaptureBegins) {
  {
    const test::NoThreads no_threads;
    EXPECT_THROW(recorder().start({}), std::system_error);
  }
  EXPECT_FALSE(recorder().is_capturing());
  recorder().start({});
  { const Span span(Zone::kStep); }
  EXPECT_EQ(thread_named(recorder().stop(), "test")->records.size(), 1U);
}

TEST_F(RecorderTest, DiscardEndsACaptureIfOneRuns) {
  recorder().start({});
  { const Span span(Zone::kStep, 1); }
  recorder().discard();
  EXPECT_FALSE(recorder().is_capturing());
  EXPECT_EQ(detail::trace_level, static_cast<int8_t>(TraceLevel::kOff)) << "the idle level";
  recorder().discard();
  { const Span span(Zone::kStep, 2); }
  recorder().start({});
  EXPECT_TRUE(thread_named(recorder().stop(), "test")->records.empty());
}

TEST_F(RecorderTest, HoldsMoreThanItsRing) {
  recorder().start({});
  constexpr std::size_t kHalfARing = Recorder::kRingRecords / 2, kSpans = 6 * kHalfARing;
  for (std::size_t i = 0; i < kSpans; ++i) {
    { const Span span(Zone::kStep, static_cast<int64_t>(i)); }
    if ((i + 1) % kHalfARing != 0) continue;
    const auto recorded = static_cast<int64_t>((i + 1) * sizeof(SpanRecord));
    eventually([&] { return recorder().captured_bytes() >= recorded; }, "the recorder's thread to empty the ring",
               [&] { return std::to_string(recorder().captured_bytes()) + " of " + std::to_string(recorded) + " bytes"; });
  }
  const RankCapture capture = recorder().stop();
  EXPECT_EQ(recorder().captured_bytes(), 0) << "none runs any more";
  const ThreadCapture& thread = *thread_named(capture, "test");
  EXPECT_EQ(thread.records.size(), kSpans);
  EXPECT_EQ(thread.num_lost, 0U);
  for (std::size_t i = 1; i < thread.records.size(); ++i) ASSERT_LT(thread.records[i - 1].a, thread.records[i].a);
}

/// Rings are full again long before the recorder's thread wakes.
TEST_F(RecorderTest, WhoWakesAnywayMayEmptyTheRings) {
  constexpr uint64_t kHalfARing = Recorder::kRingRecords / 2, kHalves = 6;
  recorder().help_drain();  // no capture runs
  recorder().start({.level = TraceLevel::kOperators});
  for (uint64_t half = 0; half < kHalves; ++half) {
    for (uint64_t i = 0; i < kHalfARing; ++i) record_value(Zone::kRankRows, 1);
    recorder().help_drain();
  }
  const RankCapture capture = recorder().stop();
  const ThreadCapture* thread = thread_named(capture, "test");
  ASSERT_NE(thread, nullptr);
  EXPECT_EQ(thread->records.size(), kHalves * kHalfARing);
  EXPECT_EQ(thread->num_lost, 0U);
}

TEST_F(RecorderTest, StaysWithinItsBoundAndCountsTheRest) {
  constexpr int64_t kHeld = 1000;
  recorder().start({.max_bytes = kHeld * static_cast<int64_t>(sizeof(SpanRecord))});
  constexpr std::size_t kSpans = 5000;
  for (std::size_t i = 0; i < kSpans; ++i) {
    const Span span(Zone::kStep, static_cast<int64_t>(i));
  }
  const RankCapture capture = recorder().stop();
  const ThreadCapture& thread = *thread_named(capture, "test");
  EXPECT_EQ(thread.records.size(), static_cast<std::size_t>(kHeld));
  EXPECT_EQ(thread.num_lost, kSpans - kHeld);
  EXPECT_EQ(thread.records.front().a, 0U) << "the first ones are kept";
}

TEST_F(RecorderTest, KeepsTheSpansOfThreadsThatEnded) {
  recorder().start({});
  std::thread other([] {
    recorder().register_thread("other");
    const Span span(Zone::kStep, 5);
  });
  other.join();
  const RankCapture capture = recorder().stop();
  const ThreadCapture* thread = thread_named(capture, "other");
  ASSERT_NE(thread, nullptr);
  ASSERT_EQ(thread->records.size(), 1U);
  EXPECT_EQ(thread->records[0].a, 5U);
  EXPECT_EQ(thread_named(recorder().snapshot(), "other"), nullptr) << "its ring is gone with the capture";
}

TEST_F(RecorderTest, UnregisteredThreadsRecordNothing) {
  recorder().start({});
  std::thread([] { const Span span(Zone::kStep); }).join();
  std::size_t num_records = 0;
  for (const ThreadCapture& thread : recorder().stop().threads) num_records += thread.records.size();
  EXPECT_EQ(num_records, 0U);
}

TEST_F(RecorderTest, TheFlightRecorderHasTheLastSteps) {
  recorder().set_idle_level(TraceLevel::kSteps);
  for (uint32_t i = 0; i < Recorder::kRingRecords + 100; ++i) {
    const Span span(Zone::kStep, i);
  }
  { const Span span(Zone::kRouter); }  // above the idle level
  const RankCapture capture = recorder().snapshot();
  const ThreadCapture& thread = *thread_named(capture, "test");
  EXPECT_GE(thread.records.size(), Recorder::kRingRecords - 1);
  EXPECT_EQ(thread.records.back().a, Recorder::kRingRecords + 99);
  EXPECT_EQ(thread.num_lost, 0U) << "what was overwritten is no loss";
  EXPECT_GE(capture.begin, thread.records.front().end) << "what ended before may be gone";
  EXPECT_LE(capture.begin, thread.records.back().end);
  EXPECT_LE(Recorder::held_since(), thread.records.front().end);
}

TEST_F(RecorderTest, ManyThreadsRecordWhileCapturesComeAndGo) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> num_spans{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      recorder().register_thread("busy " + std::to_string(t));
      while (!stop) {
        { const Span span(Zone::kStep, t); }
        ++num_spans;
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    recorder().start({.max_bytes = 1 << 20});
    const int64_t before = num_spans;
    eventually([&] { return num_spans > before + 1000; }, "spans of a capture");
    const RankCapture capture = recorder().stop();
    for (const ThreadCapture& thread : capture.threads) {
      for (const SpanRecord& record : thread.records) ASSERT_GE(record.end, capture.begin);
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A moment that lies between two others by one clock does so by the other, whatever happens meanwhile.
TEST(TickClock, FollowsTheSystemsClock) {
  const uint64_t ticks_before = now_ticks();
  const int64_t ns_before = monotonic_ns();
  const TickCalibration calibration;
  const int64_t ns_made = monotonic_ns();
  const uint64_t ticks_made = now_ticks();
  calibration.line();  // waits until the first pair is long enough ago
  const uint64_t ticks_asked = now_ticks();
  const int64_t ns_asked = monotonic_ns();
  const TickLine line = calibration.line();
  const int64_t ns_answered = monotonic_ns();
  const uint64_t ticks_answered = now_ticks();
  if (!ticks_are_tsc()) {
    EXPECT_EQ(line.to_ns(ticks_asked), static_cast<int64_t>(ticks_asked)) << "a tick is a nanosecond of that clock";
    return;
  }
  EXPECT_GE(line.base_ns, ns_asked);
  EXPECT_LE(line.base_ns, ns_answered);
  EXPECT_GE(line.base_ticks, ticks_asked);
  EXPECT_LE(line.base_ticks, ticks_answered);
  const auto rate = [](int64_t ns, uint64_t ticks) { return static_cast<double>(ns) / static_cast<double>(ticks); };
  EXPECT_GE(line.ns_per_tick, rate(ns_asked - ns_made, ticks_answered - ticks_before));
  EXPECT_LE(line.ns_per_tick, rate(ns_answered - ns_before, ticks_asked - ticks_made));
}

TEST(TickClock, TicksAndNanosecondsAreOneLine) {
  const TickLine line{.base_ticks = 3'000'000, .base_ns = 5'000'000'000, .ns_per_tick = 0.5};
  EXPECT_EQ(line.to_ns(3'000'000), 5'000'000'000);
  EXPECT_EQ(line.to_ns(3'000'100), 5'000'000'050);
  EXPECT_EQ(line.to_ns(2'999'900), 4'999'999'950);
  const auto point = [](int64_t ns) { return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns)); };
  EXPECT_EQ(to_ticks(line, point(5'000'000'050)), 3'000'100U);
  EXPECT_EQ(to_ticks(line, point(4'999'999'950)), 2'999'900U);
}

}  // namespace
}  // namespace ferry
