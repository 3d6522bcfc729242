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

/// Ranks 1 and 2 hold two experts each. Layer 0 is even over ranks, layer 1 is not, layer 2 saw nothing.
test::SmallCapture three_layers() {
  test::SmallCapture small(3, 2000);
  small.capture.info.expert_rank = {1, 1, 2, 2};
  small.capture.info.expert_tokens = {{30, 10, 5, 35}, {60, 20, 10, 10}, {0, 0, 0, 0}};
  return small;
}

TEST(ExpertViewTest, OneRowPerLayerAndExpert) {
  const ReportInput input(three_layers().capture);
  const Table table = make_expert_view(input);
  ASSERT_EQ(table.rows.size(), 12U);
  const std::size_t row = row_with(table, {{"layer", int64_t{1}}, {"expert", int64_t{0}}});
  EXPECT_EQ(number(table, row, "rank"), 1);
  EXPECT_EQ(number(table, row, "tokens"), 60);
  EXPECT_DOUBLE_EQ(number(table, row, "layer_share"), 0.6);
  EXPECT_DOUBLE_EQ(number(table, row, "over_mean"), 2.4);
  EXPECT_TRUE(is_empty(table, row_with(table, {{"layer", int64_t{2}}, {"expert", int64_t{3}}}), "layer_share"));
}

TEST(BalanceViewTest, MeanOverRanksByMaxOverRanks) {
  const ReportInput input(three_layers().capture);
  const Table table = make_balance_view(input);
  ASSERT_EQ(table.rows.size(), 3U);
  // Layer 0: 40 and 40. Its experts are uneven (and so are the layers), which is not what balancedness asks.
  EXPECT_DOUBLE_EQ(number(table, 0, "balancedness"), 1);
  EXPECT_EQ(number(table, 0, "rank_1_tokens"), 40);
  EXPECT_EQ(number(table, 0, "rank_2_tokens"), 40);
  // Layer 1: 80 and 20: mean 50, max 80.
  EXPECT_DOUBLE_EQ(number(table, 1, "balancedness"), 0.625);
  EXPECT_DOUBLE_EQ(number(table, 1, "imbalance"), 1.6);
  EXPECT_EQ(number(table, 1, "busiest_rank"), 1);
  EXPECT_EQ(number(table, 1, "hottest_expert"), 0);
  EXPECT_DOUBLE_EQ(number(table, 1, "hottest_share"), 0.6);
  // Sorted 10, 10, 20, 60: 2 (10 + 20 + 60 + 240) / (4 x 100) - 5 / 4.
  EXPECT_DOUBLE_EQ(number(table, 1, "gini"), 0.4);
  EXPECT_TRUE(is_empty(table, 2, "balancedness"));
}

/// Copies: expert 0 of layer 1 on ranks 1 and 2, expert 3 there on rank 1 alone.
test::SmallCapture with_copies() {
  test::SmallCapture small = three_layers();
  small.capture.info.placement = {.epoch = 4, .ranks = {1, 2}, .holders = {{1, 1, 2, 2}, {3, 1, 2, 1}, {1, 1, 2, 2}}};
  return small;
}

TEST(ExpertViewTest, NamesAllHoldersOfTheLayer) {
  const ReportInput input(with_copies().capture);
  const Table table = make_expert_view(input);
  const auto row = [&](int64_t layer, int64_t expert) { return row_with(table, {{"layer", layer}, {"expert", expert}}); };
  EXPECT_EQ(test::text(table, row(1, 0), "rank"), "1 2");
  EXPECT_EQ(number(table, row(1, 3), "rank"), 1);
  EXPECT_EQ(number(table, row(0, 3), "rank"), 2);
}

TEST(BalanceViewTest, CopiesShareRowsUnlessItIsKnownWhoAnswered) {
  test::SmallCapture small = with_copies();
  small.capture.info.expert_tokens[1][0] = 61;
  const ReportInput divided(small.capture);
  Table table = make_balance_view(divided);
  EXPECT_EQ(number(table, 1, "rank_1_tokens"), 31 + 20 + 10);
  EXPECT_EQ(number(table, 1, "rank_2_tokens"), 30 + 10);
  small.counted(0, Zone::kRankRows, 100, 0, 0);  // of no layer
  small.span(0, Zone::kRankRows, 100, 100, 70, 1, {0, 1}).span(0, Zone::kRankRows, 200, 200, 20, 1, {0, 1});
  small.span(0, Zone::kRankRows, 200, 200, 11, 3, {0, 1});
  const ReportInput answered(small.capture);
  table = make_balance_view(answered);
  EXPECT_EQ(number(table, 1, "rank_1_tokens"), 90);
  EXPECT_EQ(number(table, 1, "rank_2_tokens"), 0);
  EXPECT_EQ(number(table, 1, "rank_3_tokens"), 11);
  EXPECT_EQ(number(table, 0, "rank_2_tokens"), 40) << "of a layer of which nothing is known";
  EXPECT_DOUBLE_EQ(number(table, 1, "hottest_share"), 61.0 / 101);
}

TEST(HotExpertViewTest, OfSeveralHoldersTheFullestIsNamed) {
  test::SmallCapture small = with_copies();
  small.step(0, Phase::kDecode, 0, 1000, 100, 4);
  small.span(0, Zone::kRankRows, 100, 100, 30, 1, {0, 1}).span(0, Zone::kRankRows, 200, 200, 70, 2, {0, 1});
  const ReportInput input(small.capture);
  const Table table = make_hot_expert_view(input);
  EXPECT_EQ(number(table, 0, "expert"), 0);
  EXPECT_EQ(number(table, 0, "rank"), 2);
  EXPECT_DOUBLE_EQ(number(table, 0, "rank_over_mean"), 1.4);
}

TEST(HotExpertViewTest, JoinsExpertRankOperatorAndWaits) {
  test::SmallCapture small = three_layers();
  small.capture.ranks[2].alignment.bound_ns = 30;
  small.step(0, Phase::kDecode, 0, 1000, 100, 4).step(1, Phase::kDecode, 1000, 1900, 100, 4);
  small.exchange(1, {0, 1}, 100, 150, 550, 600, 80, 800).exchange(2, {0, 1}, 110, 160, 360, 610, 20, 200);
  small.span(0, Zone::kWaitCombine, 300, 600, 0, 1, {0, 1});
  small.exchange(1, {1, 1}, 1100, 1150, 1250, 1300, 80).exchange(2, {1, 1}, 1110, 1160, 1230, 1310, 20);
  const ReportInput input(small.capture);
  const Table table = make_hot_expert_view(input);
  ASSERT_EQ(table.rows.size(), 8U);  // those with tokens
  EXPECT_EQ(number(table, 0, "layer"), 1);
  EXPECT_EQ(number(table, 0, "expert"), 0);
  EXPECT_EQ(number(table, 0, "rank"), 1);
  EXPECT_DOUBLE_EQ(number(table, 0, "layer_share"), 0.6);
  EXPECT_DOUBLE_EQ(number(table, 0, "rank_over_mean"), 1.6);
  EXPECT_EQ(ns(table, 0, "grouped_matmul_us"), 250);    // 400 and 100 in two steps
  EXPECT_EQ(ns(table, 0, "coordinator_wait_us"), 150);  // 300 in two steps
  // In step 0 the coordinator is ready at 300, rank 2's reply there at 360 and rank 1's at 550: its four times as many rows
  // explain those 190. The 20 of step 1 are below the clocks' bound.
  EXPECT_EQ(ns(table, 0, "saved_us"), 95);
  EXPECT_EQ(number(table, 1, "layer"), 0);  // 35 of 80
  EXPECT_EQ(number(table, 1, "expert"), 3);
}

TEST(HotExpertViewTest, ShowsTenAtMost) {
  const ReportInput input(make_made_capture({.hot_expert = 6}));
  const Table table = make_hot_expert_view(input);
  ASSERT_EQ(table.rows.size(), 10U);
  EXPECT_EQ(number(table, 0, "layer"), 1);
  EXPECT_EQ(number(table, 0, "expert"), 6);
  EXPECT_GE(number(table, 0, "layer_share"), 0.5);
}

}  // namespace
}  // namespace ferry
