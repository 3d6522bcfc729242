#include <gtest/gtest.h>

#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::ns;
using test::number;
using test::row_with;

TEST(StepViewTest, DividesAStepOfTwoRanksByHand) {
  test::SmallCapture small(2, 1000);
  small.capture.ranks[1].alignment.bound_ns = 40;
  small.step(3, Phase::kDecode, 100, 500, 1, 1);
  small.span(0, Zone::kQProj, 130, 200, 1, 0, {3, 0});
  small.span(0, Zone::kCombineReceive, 180, 400, 10, 1, {3, 0});
  small.span(0, Zone::kWaitCombine, 250, 400, 0, 1, {3, 0});
  small.span(1, Zone::kGroupedGateUp, 300, 700, 1, 1, {3, 0});  // longer than the step
  const ReportInput input(small.capture);
  const Table table = make_step_view(input);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(ns(table, 0, "window_us"), 400);
  EXPECT_EQ(ns(table, 0, "computing_us"), 70);
  EXPECT_EQ(ns(table, 0, "communication_us"), 220);
  EXPECT_EQ(ns(table, 0, "overlapped_us"), 20);
  EXPECT_EQ(ns(table, 0, "exposed_us"), 200);
  EXPECT_EQ(ns(table, 0, "free_us"), 130);
  EXPECT_EQ(ns(table, 0, "bubble_us"), 150);
  EXPECT_EQ(ns(table, 0, "stage_us"), 250);
  EXPECT_EQ(ns(table, 0, "preparing_us"), 30);
  EXPECT_EQ(number(table, 0, "clock_bound_us"), 0);
  EXPECT_EQ(ns(table, 1, "computing_us"), 200);
  EXPECT_EQ(ns(table, 1, "free_us"), 200);
  EXPECT_EQ(ns(table, 1, "preparing_us"), 200);
  EXPECT_DOUBLE_EQ(number(table, 1, "clock_bound_us"), 0.04);
  EXPECT_NE(table.note.find("0.040 us"), std::string::npos) << table.note;
}

TEST(StepViewTest, EveryStepOfEveryRankAddsUp) {
  for (const MadeRun& run : {MadeRun{}, MadeRun{.world_size = 1}, MadeRun{.world_size = 5, .slow_rank = 3, .slow_factor = 3.7},
                             MadeRun{.clock_offset_ns = 123456, .clock_drift = 3e-5, .clock_bound_ns = 900}}) {
    const ReportInput input(make_made_capture(run));
    const Table table = make_step_view(input);
    ASSERT_EQ(table.rows.size(), input.timeline.steps.size() * static_cast<std::size_t>(run.world_size));
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      EXPECT_EQ(ns(table, r, "computing_us") + ns(table, r, "exposed_us") + ns(table, r, "free_us"), ns(table, r, "window_us"));
      EXPECT_EQ(ns(table, r, "overlapped_us") + ns(table, r, "exposed_us"), ns(table, r, "communication_us"));
      EXPECT_EQ(ns(table, r, "stage_us") + ns(table, r, "bubble_us"), ns(table, r, "window_us"));
      EXPECT_GT(ns(table, r, "window_us"), 0);
    }
  }
}

}  // namespace
}  // namespace ferry
