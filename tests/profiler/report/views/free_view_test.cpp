#include <gtest/gtest.h>

#include "profiler/report/views/views.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::is_empty;
using test::ns;
using test::number;
using test::row_with;
using test::text;

std::string cause_at(const Table& table, double begin_us) {
  return text(table, row_with(table, {{"begin_us", begin_us}}), "cause");
}

TEST(FreeViewTest, NamesTheCausesOfGaps) {
  test::SmallCapture small(2, 9'000'000);
  small.capture.ranks[0].num_preemptions = 2;
  small.step(0, Phase::kDecode, 1'000'000, 5'000'000, 1, 1);
  small.span(0, Zone::kSchedule, 1'000'000, 1'090'000, 0, 0, {0, kNoLayer});
  small.span(0, Zone::kQProj, 1'100'000, 1'200'000, 1, 0, {0, 0});
  small.span(0, Zone::kWaitLock, 1'200'000, 1'270'000, 0, 0, {0, 0});
  small.span(0, Zone::kKProj, 1'300'000, 1'400'000, 1, 0, {0, 0});
  small.span(0, Zone::kVProj, 1'450'000, 1'500'000, 1, 0, {0, 0});  // 50 us that nothing explains
  small.span(0, Zone::kOProj, 2'500'000, 4'000'000, 1, 0, {0, 0});  // 1 ms that nothing explains
  small.span(0, Zone::kWaitCombine, 4'000'000, 5'000'000, 0, 1, {0, 0});
  small.span(0, Zone::kRequestQueue, 6'000'000, 9'000'000, 3, 1);
  small.span(1, Zone::kGroupedDown, 2'000'000, 3'000'000, 1, 1, {0, 0});
  small.span(1, Zone::kWaitDispatch, 3'000'000, 5'000'000, 0, 0, {0, 1});
  const ReportInput input(small.capture);
  const Table table = make_free_view(input);
  EXPECT_EQ(cause_at(table, 1000), "scheduler");
  EXPECT_EQ(cause_at(table, 1200), "lock");
  EXPECT_EQ(cause_at(table, 1400), "unknown");
  EXPECT_EQ(cause_at(table, 1500), "preempted");
  EXPECT_EQ(cause_at(table, 4000), "waiting for combine");
  EXPECT_EQ(cause_at(table, 3000), "waiting for dispatch data");
  EXPECT_EQ(cause_at(table, 0), "no work");
  EXPECT_EQ(text(table, row_with(table, {{"rank", int64_t{0}}, {"begin_us", 6000.0}}), "cause"), "scheduler");  // it starves
  const std::size_t lock = row_with(table, {{"begin_us", 1200.0}});
  EXPECT_EQ(ns(table, lock, "length_us"), 100'000);
  EXPECT_EQ(text(table, lock, "previous_operator"), "MatMul.q_proj");
  EXPECT_EQ(text(table, lock, "next_operator"), "MatMul.k_proj");
  EXPECT_EQ(number(table, lock, "step"), 0);
  EXPECT_TRUE(is_empty(table, row_with(table, {{"begin_us", 0.0}}), "step"));
}

TEST(FreeViewTest, ShowsTheTenLongestOfEachRank) {
  test::SmallCapture small(1, 100'000);
  small.step(0, Phase::kDecode, 0, 100'000, 1, 1);
  uint64_t at = 0;
  for (uint64_t gap = 100; gap <= 1500; gap += 100) {  // 15 gaps, the last one after all operators
    small.span(0, Zone::kAdd, at, at + 50, 1, 0, {0, 0});
    at += 50 + gap;
  }
  small.span(0, Zone::kAdd, at, 100'000, 1, 0, {0, 0});
  const ReportInput input(small.capture);
  const Table table = make_free_view(input);
  ASSERT_EQ(table.rows.size(), 10U);
  EXPECT_EQ(ns(table, 0, "length_us"), 1500);
  EXPECT_EQ(ns(table, 9, "length_us"), 600);
}

TEST(FreeViewTest, IdlenessDoesNotCrowdOutOtherGaps) {
  test::SmallCapture small(1, 100'000);
  for (uint32_t s = 0; s < 12; ++s) {  // 12 steps with a gap of 10 to 21 each, 5000 between them
    small.step(s, Phase::kDecode, 6000 * s, 6000 * s + 1000, 1, 1);
    small.span(0, Zone::kAdd, 6000 * s, 6000 * s + 990 - s, 1, 0, {s, 0});
  }
  const ReportInput input(small.capture);
  const Table table = make_free_view(input);
  ASSERT_EQ(table.rows.size(), 10U);
  EXPECT_EQ(text(table, 2, "cause"), "no work");
  EXPECT_EQ(ns(table, 3, "length_us"), 21);
  EXPECT_EQ(number(table, 3, "step"), 11);
}

}  // namespace
}  // namespace ferry
