#include <gtest/gtest.h>

#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::is_empty;
using test::ns;
using test::number;
using test::row_with;
using test::text;

int64_t sum_of(const Table& table, std::size_t row, const std::string& stage) {
  int64_t sum = 0;
  for (const char* part : {"computing", "exposed", "free", "stall", "between"})
    sum += ns(table, row, stage + "_" + part + "_us");
  return sum;
}

/// Three steps: request 1 is in the first and the third, request 2 in the second.
test::SmallCapture two_requests() {
  test::SmallCapture small(1, 2000);
  small.step(0, Phase::kPrefill, 300, 500, 4, 1).span(0, Zone::kQProj, 320, 420, 4, 0, {0, 0});
  small.step(1, Phase::kPrefill, 520, 820, 4, 1);
  small.step(2, Phase::kDecode, 900, 1000, 1, 1).span(0, Zone::kQProj, 900, 960, 1, 0, {2, 0});
  small.span(0, Zone::kDispatchSend, 950, 990, 8, 0, {2, 0});
  small.span(0, Zone::kRequestTokenize, 100, 180, 1, 4).span(0, Zone::kRequestQueue, 180, 290, 1, 4);
  small.span(0, Zone::kRequestPrefill, 290, 510, 1, 4).span(0, Zone::kRequestDecode, 510, 1010, 1, 2);
  small.span(0, Zone::kRequestFinish, 1010, 1010, 1, 1);
  small.span(0, Zone::kRequestStep, 300, 500, 1, 4, {0, kNoLayer}).span(0, Zone::kRequestStep, 900, 1000, 1, 1, {2, kNoLayer});
  small.span(0, Zone::kRequestQueue, 200, 515, 2, 4).span(0, Zone::kRequestStep, 520, 820, 2, 4, {1, kNoLayer});
  return small;
}

TEST(RequestViewTest, AWaterfallByHand) {
  const ReportInput input(two_requests().capture);
  const Table table = make_request_view(input);
  const std::size_t row = row_with(table, {{"request", int64_t{1}}});
  EXPECT_EQ(ns(table, row, "arrival_us"), 100);
  EXPECT_EQ(ns(table, row, "tokenize_us"), 80);
  EXPECT_EQ(ns(table, row, "queue_us"), 110);
  EXPECT_EQ(ns(table, row, "prefill_computing_us"), 100);
  EXPECT_EQ(ns(table, row, "prefill_free_us"), 100);
  EXPECT_EQ(ns(table, row, "prefill_stall_us"), 0);
  EXPECT_EQ(ns(table, row, "prefill_between_us"), 20);  // [290, 300) and [500, 510)
  EXPECT_EQ(ns(table, row, "ttft_us"), 410);
  EXPECT_EQ(ns(table, row, "decode_computing_us"), 60);
  EXPECT_EQ(ns(table, row, "decode_exposed_us"), 30);
  EXPECT_EQ(ns(table, row, "decode_free_us"), 10);
  EXPECT_EQ(ns(table, row, "decode_stall_us"), 300);    // request 2's step
  EXPECT_EQ(ns(table, row, "decode_between_us"), 100);  // 10 + 80 + 10
  EXPECT_EQ(ns(table, row, "tpot_us"), 500);
  EXPECT_EQ(ns(table, row, "total_us"), 910);
  EXPECT_EQ(text(table, row, "finish_reason"), "stop");
}

TEST(RequestViewTest, WhatTheCaptureDidNotSeeStaysEmpty) {
  const ReportInput input(two_requests().capture);
  const Table table = make_request_view(input);
  const std::size_t row = row_with(table, {{"request", int64_t{2}}});
  EXPECT_EQ(ns(table, row, "queue_us"), 315);
  for (const char* name : {"arrival_us", "tokenize_us", "prefill_stall_us", "decode_computing_us", "ttft_us", "total_us"})
    EXPECT_TRUE(is_empty(table, row, name)) << name;
}

TEST(RequestViewTest, AmongKeptStepsOfAnArchiveTheQueueEndsWithAStep) {
  test::SmallCapture small = two_requests();
  small.span(0, Zone::kRequestTokenize, 600, 700, 3, 4);  // queued at 700; it may have had steps that were not kept
  small.span(0, Zone::kRequestFinish, 950, 950, 3, 1);
  const Table whole = make_request_view(ReportInput(small.capture));
  EXPECT_EQ(ns(whole, row_with(whole, {{"request", int64_t{3}}}), "queue_us"), 250);
  small.capture.info.selection = {{"sample", 3}};
  const Table kept = make_request_view(ReportInput(small.capture));
  EXPECT_TRUE(is_empty(kept, row_with(kept, {{"request", int64_t{3}}}), "queue_us"));
  EXPECT_EQ(ns(kept, row_with(kept, {{"request", int64_t{1}}}), "queue_us"), 110);
}

TEST(RequestViewTest, PartsAddUpToTheNanosecond) {
  test::SmallCapture small = two_requests();
  const Capture captures[] = {small.capture, make_made_capture(), make_made_capture({.world_size = 1}),
                              make_made_capture({.world_size = 4, .num_prefill_steps = 5, .num_decode_steps = 9})};
  for (const Capture& capture : captures) {
    const ReportInput input(capture);
    const Table table = make_request_view(input);
    int num_checked = 0;
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      if (is_empty(table, r, "total_us")) continue;
      const int64_t before = ns(table, r, "tokenize_us") + ns(table, r, "queue_us") + sum_of(table, r, "prefill");
      EXPECT_EQ(before, ns(table, r, "ttft_us"));
      EXPECT_EQ(before + sum_of(table, r, "decode"), ns(table, r, "total_us"));
      ++num_checked;
    }
    EXPECT_GT(num_checked, 0);
  }
}

TEST(RequestViewTest, SaysWhenARequestHadToGiveWay) {
  test::SmallCapture small = two_requests();
  small.span(0, Zone::kRequestPreempted, 520, 600, 1, 2).span(0, Zone::kRequestPreempted, 700, 850, 1, 2);
  const ReportInput input(small.capture);
  const Table table = make_request_view(input);
  const std::size_t row = row_with(table, {{"request", int64_t{1}}});
  EXPECT_EQ(number(table, row, "preemptions"), 2);
  EXPECT_EQ(ns(table, row, "first_preempted_us"), 520);
  EXPECT_EQ(ns(table, row, "preempted_us"), 230);
  EXPECT_EQ(ns(table, row, "decode_stall_us"), 300) << "part of the time without it, as before";
  const std::size_t other = row_with(table, {{"request", int64_t{2}}});
  EXPECT_EQ(number(table, other, "preemptions"), 0);
  EXPECT_TRUE(is_empty(table, other, "first_preempted_us"));
}

TEST(RequestViewTest, AStageMayBeginInsideAStep) {
  test::SmallCapture small(1, 1000);
  small.step(0, Phase::kPrefill, 100, 300, 4, 1).span(0, Zone::kQProj, 100, 200, 4, 0, {0, 0});
  small.span(0, Zone::kRequestQueue, 50, 150, 1, 4).span(0, Zone::kRequestPrefill, 150, 250, 1, 4);
  small.span(0, Zone::kRequestStep, 100, 300, 1, 4, {0, kNoLayer});
  const ReportInput input(small.capture);
  const Table table = make_request_view(input);
  EXPECT_EQ(ns(table, 0, "prefill_computing_us"), 50);
  EXPECT_EQ(ns(table, 0, "prefill_free_us"), 50);
  EXPECT_EQ(ns(table, 0, "prefill_stall_us"), 0);
  EXPECT_EQ(ns(table, 0, "prefill_between_us"), 0);
}

TEST(RunViewTest, CountsAndLatencies) {
  test::SmallCapture small = two_requests();
  small.capture.info.model.name = "small";
  small.capture.ranks[0].span_cost_ns = 3;
  small.capture.ranks[0].threads[0].num_lost = 17;
  const ReportInput input(small.capture);
  const Table table = make_run_view(input);
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(text(table, 0, "model"), "small");
  EXPECT_EQ(number(table, 0, "steps"), 3);
  EXPECT_EQ(number(table, 0, "step_tokens"), 9);
  EXPECT_EQ(number(table, 0, "requests"), 2);
  EXPECT_EQ(number(table, 0, "finished_requests"), 1);
  EXPECT_EQ(number(table, 0, "new_tokens"), 2);
  EXPECT_DOUBLE_EQ(number(table, 0, "ttft_p50_ms"), 410e-6);
  EXPECT_DOUBLE_EQ(number(table, 0, "tpot_p99_ms"), 500e-6);
  EXPECT_DOUBLE_EQ(number(table, 0, "itl_p99_ms"), 490e-6);  // from the first token at 510 to the step's end at 1000
  EXPECT_EQ(number(table, 0, "lost_records"), 17);
  const double records = number(table, 0, "records");
  EXPECT_DOUBLE_EQ(number(table, 0, "profiler_share"), records * 3 / 600);
}

}  // namespace
}  // namespace ferry
