#include "profiler/capture_window.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "profiler/report/timeline/report_input.h"
#include "profiler/report/views/views.h"
#include "profiler/trace_buffer.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

/// What a ring of `capacity` records would still hold of a rank's thread, and from when on it holds everything.
void wrap(RankCapture& rank, std::size_t capacity) {
  ThreadCapture& thread = rank.threads[0];
  std::stable_sort(thread.records.begin(), thread.records.end(),
                   [](const SpanRecord& x, const SpanRecord& y) { return x.end < y.end; });
  TraceBuffer ring(capacity);
  for (const SpanRecord& record : thread.records) ring.push(record);
  thread.records.clear();
  uint64_t num_overwritten = 0;
  ring.read(0, thread.records, num_overwritten);
  if (num_overwritten > 0) rank.begin = thread.records.front().end;
}

/// Cut as a saved profile is.
std::optional<CaptureWindow> save(Capture& capture, uint64_t not_before = 0) {
  const std::optional<CaptureWindow> window = find_window(capture, std::max(find_common_begin(capture), not_before));
  if (window) cut_to(*window, capture);
  return window;
}

TEST(CaptureWindowTest, RingsThatWrapAtDifferentSpeedsGiveTheNumbersOfAFreshCount) {
  const MadeRun run{
      .world_size = 4, .num_decode_steps = 60, .clock_offset_ns = -7'654'321, .clock_drift = 2e-5, .clock_bound_ns = 400};
  const Capture whole = make_made_capture(run);
  Capture saved = whole;
  wrap(saved.ranks[0], 4096);  // holds the most
  wrap(saved.ranks[1], 512);
  wrap(saved.ranks[2], 256);  // the least
  const std::optional<CaptureWindow> window = save(saved);
  ASSERT_TRUE(window.has_value());
  EXPECT_GT(window->first_step, 10U);
  EXPECT_EQ(window->last_step, 61U);

  const ReportInput fresh(whole), cut(saved);
  EXPECT_EQ(cut.timeline.num_unpaired, 0);
  EXPECT_EQ(cut.timeline.steps.size(), window->last_step - window->first_step + 1);
  const Table all = make_step_view(fresh), last = make_step_view(cut);
  const std::size_t skipped = all.rows.size() - last.rows.size();
  EXPECT_EQ(skipped, window->first_step * 4);
  for (std::size_t r = 0; r < last.rows.size(); ++r) {
    for (const char* name : {"step", "rank", "window_us", "computing_us", "exposed_us", "free_us"}) {
      if (test::is_empty(last, r, name)) continue;
      EXPECT_NEAR(test::number(last, r, name), test::number(all, skipped + r, name), 0.002) << name << " in row " << r;
    }
  }
}

TEST(CaptureWindowTest, TheWallIsThatOfTheStepsWhateverBeganBefore) {
  test::SmallCapture small(2, 10'000);
  for (uint32_t s = 0; s < 4; ++s) small.step(s, Phase::kDecode, 2000 * s + 500, 2000 * s + 2000, 1, 1);
  small.span(0, Zone::kRequestDecode, 10, 8100, 1, 9, {3, kNoLayer});
  small.span(1, Zone::kWaitDispatch, 0, 2600, 0, 0, {1, 0});
  small.span(1, Zone::kPreemptions, 900, 900, 5, 0, {0, kNoLayer}).span(1, Zone::kPreemptions, 5000, 5000, 2, 0, {2, kNoLayer});
  small.capture.ranks[1].begin = 2000;
  const std::optional<CaptureWindow> window = save(small.capture);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->first_step, 1U);
  const ReportInput input(small.capture);
  EXPECT_EQ(input.timeline.end_ns, 8000 - 2500);
  EXPECT_EQ(small.capture.ranks[1].num_preemptions, 2) << "those of the window";
  const Table requests = make_request_view(input);
  ASSERT_EQ(requests.rows.size(), 1U);
  EXPECT_EQ(test::text(requests, 0, "began"), "before");
  EXPECT_TRUE(test::is_empty(requests, 0, "arrival_us"));
}

TEST(CaptureWindowTest, BeginsAtAStepNotBeforeTheMomentAsked) {
  Capture capture = make_made_capture({.world_size = 3, .num_decode_steps = 20});
  uint64_t begun = 0;
  for (const SpanRecord& record : capture.ranks[0].threads[0].records) {
    if (record.zone == Zone::kStep && record.step == 7) begun = record.begin;
  }
  const std::optional<CaptureWindow> window = save(capture, begun - 1);
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->first_step, 7U);
  EXPECT_FALSE(find_window(capture, capture.ranks[0].end).has_value());
}

TEST(CaptureWindowTest, NoStepIsLostToTheRoundingOfTicks) {
  for (uint32_t first = 0; first < 40; ++first) {
    test::SmallCapture small(2, 1'000'000);
    for (RankCapture& rank : small.capture.ranks) rank.ticks.ns_per_tick = 0.3713;
    for (uint32_t s = 0; s < 50; ++s) small.step(s, Phase::kDecode, 1001 * s + 1, 1001 * s + 1000, 1, 1);
    const std::optional<CaptureWindow> window = save(small.capture, 1001 * first);
    ASSERT_TRUE(window.has_value());
    EXPECT_EQ(window->first_step, first);
    EXPECT_EQ(ReportInput(small.capture).timeline.steps.size(), 50 - first);
  }
}

TEST(CaptureWindowTest, ALostRankDoesNotNarrowIt) {
  Capture capture = make_made_capture({.world_size = 3});
  capture.ranks[2].threads.clear();
  capture.ranks[2].begin = capture.ranks[2].end = capture.ranks[0].end + 1'000'000;
  EXPECT_TRUE(save(capture).has_value());
}

}  // namespace
}  // namespace ferry
