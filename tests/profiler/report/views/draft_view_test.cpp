#include <gtest/gtest.h>

#include "profiler/report/views/views.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::ns;
using test::number;
using test::row_with;

/// A plain step, then one of two sequences with three drafts and two, of which one and two are right. `drafting_ns` of guessing
/// behind the second.
test::SmallCapture two_steps(uint64_t drafting_ns) {
  test::SmallCapture small(1, 10000);
  small.step(0, Phase::kDecode, 100, 200, 2, 2);
  const uint64_t end = 1700 + drafting_ns;
  small.step(1, Phase::kDecode, 1000, end, 7, 2).span(0, Zone::kDraft, 1700, end, 4, 2, {1, kNoLayer});
  small.span(0, Zone::kRequestVerify, 1000, 1600, 5, pack_verify(3, 1), {1, kNoLayer});
  small.span(0, Zone::kRequestVerify, 1000, 1600, 6, pack_verify(2, 2), {1, kNoLayer});
  return small;
}

TEST(DraftViewTest, DividesStepsByHand) {
  const ReportInput input(two_steps(300).capture);
  const Table table = make_draft_view(input);
  ASSERT_EQ(table.rows.size(), 1U);
  const std::size_t decode = row_with(table, {{"phase", "decode"}});
  EXPECT_EQ(number(table, decode, "steps"), 2);
  EXPECT_EQ(number(table, decode, "verifying_steps"), 1);
  EXPECT_EQ(number(table, decode, "drafts"), 5);
  EXPECT_EQ(number(table, decode, "kept"), 3);
  EXPECT_EQ(ns(table, decode, "wall_us"), 100 + 1000);
  EXPECT_EQ(ns(table, decode, "drafting_us"), 300);
  EXPECT_EQ(ns(table, decode, "wasted_us"), 200) << "two of seven rows of 700 ns";
  EXPECT_EQ(ns(table, decode, "useful_us"), 600);
  EXPECT_NEAR(
      number(table, decode, "useful_share") + number(table, decode, "drafting_share") + number(table, decode, "wasted_share"),
      1, 1e-12);
}

TEST(DraftViewTest, SlowGuessingIsSeenAsDraftingAndNowhereElse) {
  const ReportInput quick_input(two_steps(300).capture), slow_input(two_steps(5300).capture);
  const Table quick = make_draft_view(quick_input), slow = make_draft_view(slow_input);
  EXPECT_EQ(ns(slow, 0, "drafting_us") - ns(quick, 0, "drafting_us"), 5000);
  for (const char* other : {"useful_us", "wasted_us"}) EXPECT_EQ(ns(slow, 0, other), ns(quick, 0, other)) << other;
}

TEST(DraftViewTest, CountsWhatWasRightByPlace) {
  const ReportInput input(two_steps(300).capture);
  const Table table = make_draft_place_view(input);
  ASSERT_EQ(table.rows.size(), 3U);
  const std::vector<std::pair<int64_t, int64_t>> expected{{2, 2}, {2, 1}, {1, 0}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(number(table, i, "tried"), expected[i].first) << i;
    EXPECT_EQ(number(table, i, "right"), expected[i].second) << i;
  }
}

TEST(DraftViewTest, IsEmptyWithoutDrafts) {
  test::SmallCapture small(1, 1000);
  small.step(0, Phase::kDecode, 100, 200, 2, 2);
  const ReportInput input(small.capture);
  EXPECT_TRUE(make_draft_view(input).rows.empty());
  EXPECT_TRUE(make_draft_place_view(input).rows.empty());
}

}  // namespace
}  // namespace ferry
