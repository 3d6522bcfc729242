#include <gtest/gtest.h>

#include "profiler/report/exchanges.h"
#include "profiler/report/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::is_empty;
using test::ns;
using test::number;
using test::row_with;
using test::text;

/// Three workers, one layer, two steps: rank 2 answers at 900, the others at 500 and 520, then all together.
test::SmallCapture three_workers() {
  test::SmallCapture small(4, 3000);
  small.step(0, Phase::kDecode, 0, 1200, 1, 1).step(1, Phase::kDecode, 1200, 2900, 1, 1);
  small.exchange(1, {0, 0}, 100, 200, 500, 550, 10).exchange(2, {0, 0}, 100, 200, 900, 950, 12);
  small.exchange(3, {0, 0}, 100, 200, 520, 960, 10);
  small.span(0, Zone::kWaitCombine, 550, 950, 0, 2, {0, 0});
  small.exchange(1, {1, 0}, 1300, 1400, 1700, 1750, 10).exchange(2, {1, 0}, 1300, 1400, 1710, 1760, 10);
  small.exchange(3, {1, 0}, 1300, 1400, 1700, 1770, 10);
  return small;
}

TEST(StragglerViewTest, TheLastReplyGetsTheVote) {
  const ReportInput input(three_workers().capture);
  const Table table = make_straggler_view(input);
  ASSERT_EQ(table.rows.size(), 3U);
  const std::size_t row = row_with(table, {{"rank", int64_t{2}}});
  EXPECT_EQ(number(table, row, "collectives"), 2);
  EXPECT_EQ(number(table, row, "votes"), 1);  // 10 of 410 in step 1 is below 5 %
  EXPECT_EQ(number(table, row, "steps_last_share"), 0.5);
  EXPECT_EQ(ns(table, row, "late_mean_us"), 390);  // 900 - median(500, 520)
  EXPECT_DOUBLE_EQ(number(table, row, "late_share"), 390.0 / 800);
  EXPECT_EQ(text(table, row, "cause"), "GroupedMatmulSwiglu");
  EXPECT_EQ(ns(table, row, "excess_us"), 390);
  EXPECT_DOUBLE_EQ(number(table, row, "rows_ratio"), 1.2);
  EXPECT_EQ(ns(table, row, "work_us"), 505);             // 700 and 310
  EXPECT_EQ(ns(table, row, "waited_us_per_step"), 200);  // 400 in two steps
  // Of 300, 310 and 505: (505 - 310) / (505 - 300); three values are too few to be sure.
  EXPECT_EQ(text(table, row, "second_opinion"), "no outlier: Dixon Q 0.95 <= 0.99");
  EXPECT_EQ(number(table, row_with(table, {{"rank", int64_t{1}}}), "votes"), 0);
}

TEST(StragglerViewTest, BelowTheClockBoundNobodyIsLate) {
  test::SmallCapture small = three_workers();
  small.capture.ranks[2].alignment.bound_ns = 391;
  const ReportInput input(small.capture);
  const Table table = make_straggler_view(input);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(number(table, r, "votes"), 0);
    EXPECT_TRUE(is_empty(table, r, "late_mean_us"));
    EXPECT_EQ(ns(table, r, "clock_bound_us"), 391);
  }
}

TEST(StragglerViewTest, TimeOutsideOperatorsAndLateRowsAreCausesToo) {
  test::SmallCapture small(3, 2000);
  small.step(0, Phase::kDecode, 0, 1900, 1, 1);
  small.exchange(1, {0, 0}, 100, 200, 300, 900, 1);
  // Rank 2 works as long as rank 1 but sleeps before it replies.
  small.span(0, Zone::kDispatchSend, 100, 200, 9, 2, {0, 0}).span(2, Zone::kDispatchReceive, 100, 200, 9, 0, {0, 0});
  small.span(2, Zone::kGroupedGateUp, 200, 300, 1, 1, {0, 0}).span(2, Zone::kCombineSend, 800, 900, 9, 0, {0, 0});
  small.span(0, Zone::kCombineReceive, 100, 900, 9, 2, {0, 0});
  {
    const ReportInput input(small.capture);
    const Table table = make_straggler_view(input);
    EXPECT_EQ(text(table, row_with(table, {{"rank", int64_t{2}}}), "cause"), "outside its operators");
  }
  test::SmallCapture late(3, 2000);
  late.step(0, Phase::kDecode, 0, 1900, 1, 1);
  late.exchange(1, {0, 0}, 100, 200, 300, 900, 1).exchange(2, {0, 0}, 100, 600, 710, 900, 1);
  const ReportInput input(late.capture);
  const Table table = make_straggler_view(input);
  EXPECT_EQ(text(table, row_with(table, {{"rank", int64_t{2}}}), "cause"), "late start");
}

TEST(StragglerViewTest, OneWorkerHasNobodyToBeLaterThan) {
  const ReportInput input(make_made_capture({.world_size = 2}));
  EXPECT_TRUE(make_straggler_view(input).rows.empty());
}

TEST(StragglerViewTest, ClocksThatDifferDoNotMakeStragglers) {
  const MadeRun run{.world_size = 4, .slow_rank = 2, .slow_factor = 3};
  MadeRun shifted = run;
  shifted.clock_offset_ns = -7654321;
  shifted.clock_drift = 2e-5;
  const ReportInput input(make_made_capture(run)), moved(make_made_capture(shifted));
  const Table table = make_straggler_view(input), moved_table = make_straggler_view(moved);
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    EXPECT_EQ(number(table, r, "votes"), number(moved_table, r, "votes"));
    EXPECT_EQ(text(table, r, "cause"), text(moved_table, r, "cause"));
  }
}

}  // namespace
}  // namespace ferry
