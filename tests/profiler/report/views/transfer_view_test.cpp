#include <gtest/gtest.h>

#include <map>

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

/// The coordinator posts its receive at 100, the worker replies at 400, both are done at 500.
test::SmallCapture one_reply(double bound_ns) {
  test::SmallCapture small(2, 1000);
  small.capture.ranks[1].alignment.bound_ns = bound_ns;
  small.step(0, Phase::kDecode, 0, 900, 1, 1);
  small.span(0, Zone::kCombineReceive, 100, 500, 600, 1, {0, 2});
  small.span(1, Zone::kCombineSend, 400, 500, 600, 0, {0, 2});
  return small;
}

TEST(TransferViewTest, WaitsUntilTheOtherEndJoins) {
  const ReportInput input(one_reply(0).capture);
  const Table table = make_transfer_view(input);
  const std::size_t receive = row_with(table, {{"operator", "hcom_alltoallv.combine.receive"}});
  EXPECT_EQ(number(table, receive, "layer"), 2);
  EXPECT_EQ(number(table, receive, "rank"), 0);
  EXPECT_EQ(number(table, receive, "bytes"), 600);
  EXPECT_EQ(ns(table, receive, "elapse_us"), 400);
  EXPECT_EQ(ns(table, receive, "wait_us"), 300);
  EXPECT_EQ(ns(table, receive, "transit_us"), 100);
  EXPECT_DOUBLE_EQ(number(table, receive, "algbw_gb_per_s"), 1.5);
  EXPECT_DOUBLE_EQ(number(table, receive, "busbw_gb_per_s"), 0.75);  // (2 - 1) / 2
  EXPECT_DOUBLE_EQ(number(table, receive, "link_gb_per_s"), 6);
  const std::size_t send = row_with(table, {{"operator", "hcom_alltoallv.combine.send"}});
  EXPECT_EQ(ns(table, send, "wait_us"), 0);
  EXPECT_EQ(ns(table, send, "transit_us"), 100);
}

TEST(TransferViewTest, WaitsBelowTheClockBoundAreNotCounted) {
  const ReportInput input(one_reply(301).capture);
  const Table table = make_transfer_view(input);
  const std::size_t receive = row_with(table, {{"operator", "hcom_alltoallv.combine.receive"}});
  EXPECT_EQ(ns(table, receive, "wait_us"), 0);
  EXPECT_EQ(ns(table, receive, "transit_us"), 400);
  EXPECT_EQ(ns(table, receive, "clock_bound_us"), 301);
}

TEST(TrafficViewTest, CountsBytesAndFlightOfALink) {
  const ReportInput input(one_reply(0).capture);
  const Table table = make_traffic_view(input);
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(number(table, 0, "source"), 1);
  EXPECT_EQ(number(table, 0, "target"), 0);
  EXPECT_EQ(number(table, 0, "messages"), 1);
  EXPECT_EQ(ns(table, 0, "flight_us"), 100);
  EXPECT_DOUBLE_EQ(number(table, 0, "gb_per_s"), 6);
  EXPECT_TRUE(is_empty(table, 0, "rows"));
}

TEST(TrafficViewTest, RowSumsAreTheSendersOperators) {
  const ReportInput input(make_made_capture({.world_size = 5, .num_layers = 3}));
  const Table traffic = make_traffic_view(input), transfers = make_transfer_view(input);
  std::map<int64_t, double> by_source, by_sender;
  for (std::size_t r = 0; r < traffic.rows.size(); ++r)
    by_source[static_cast<int64_t>(number(traffic, r, "source"))] += number(traffic, r, "bytes");
  for (std::size_t r = 0; r < transfers.rows.size(); ++r) {
    if (text(transfers, r, "operator").ends_with(".send"))
      by_sender[static_cast<int64_t>(number(transfers, r, "rank"))] += number(transfers, r, "bytes");
  }
  EXPECT_EQ(by_source.size(), 5U);
  EXPECT_EQ(by_source, by_sender);
}

}  // namespace
}  // namespace ferry
