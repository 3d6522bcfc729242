#include <gtest/gtest.h>

#include <algorithm>

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

bool has_table(const std::vector<Table>& tables, const std::string& id) {
  return std::ranges::any_of(tables, [&](const Table& table) { return table.id == id; });
}

TEST(DeviceViewTest, BusyAndIdleByHand) {
  const ReportInput input(test::device_capture().capture);
  const Table table = make_device_view(input);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(text(table, 0, "phase"), "decode");
  EXPECT_EQ(ns(table, 0, "wall_us"), 8000);
  EXPECT_EQ(ns(table, 0, "busy_us"), 2500 + 1200);
  EXPECT_EQ(ns(table, 0, "idle_us"), 8000 - 3700);
  EXPECT_DOUBLE_EQ(number(table, 0, "busy_share"), 3700 / 8000.0);
  EXPECT_EQ(ns(table, 0, "copy_us"), 200);
  EXPECT_EQ(ns(table, 0, "handing_over_us"), 400);
  EXPECT_EQ(number(table, 0, "dispatches"), 5);
  EXPECT_EQ(number(table, 0, "barriers"), 2);
  EXPECT_EQ(number(table, 0, "submissions"), 2);
  EXPECT_EQ(text(table, 0, "clock"), "calibrated");
}

TEST(DeviceViewTest, WithoutTimestampsNothingIsClaimed) {
  Capture capture = test::device_capture().capture;
  capture.ranks[0].device.clock = "none: its queue has no timestamps";
  capture.ranks[0].threads[1].records.clear();
  const Table table = make_device_view(ReportInput(capture));
  for (const char* name : {"busy_us", "idle_us", "busy_share", "copy_us", "clock_bound_us"})
    EXPECT_TRUE(is_empty(table, 0, name));
  EXPECT_EQ(number(table, 0, "dispatches"), 5);
}

TEST(DeviceViewTest, OnlyRunsWithADeviceHaveIt) {
  EXPECT_TRUE(has_table(make_views(ReportInput(test::device_capture().capture)), "device"));
  EXPECT_FALSE(has_table(make_views(ReportInput(make_made_capture())), "device"));
}

TEST(DeviceViewTest, OperatorsHaveTheDevicesTimeInsteadOfTheHosts) {
  const Table table = make_operator_view(ReportInput(test::device_capture().capture));
  const std::size_t adds = row_with(table, {{"operator", "Add"}});
  EXPECT_EQ(text(table, adds, "kind"), "device");
  EXPECT_EQ(number(table, adds, "count"), 2) << "the second has its rest in the next submission";
  EXPECT_EQ(ns(table, adds, "total_us"), 500 + 1500);
  EXPECT_EQ(ns(table, adds, "min_us"), 500);
  EXPECT_EQ(ns(table, adds, "max_us"), 1500);
  EXPECT_EQ(number(table, adds, "bytes"), 200);
  const std::size_t product = row_with(table, {{"operator", "MatMul.o_proj"}});
  EXPECT_EQ(ns(table, product, "total_us"), 1500);
  EXPECT_EQ(ns(table, row_with(table, {{"operator", "ArgMax.sample"}}), "total_us"), 600) << "the host's own, without its wait";
  double shares = 0;
  for (std::size_t r = 0; r < table.rows.size(); ++r) shares += number(table, r, "share");
  EXPECT_NEAR(shares, 1, 1e-12);
}

TEST(DeviceViewTest, TheRoofIsTheDevicesAndNotTheHosts) {
  Capture capture = test::device_capture().capture;
  capture.info.read_bytes_per_s = 1e9;
  capture.info.model.operators.push_back({.zone = Zone::kSample, .bytes = {.fixed = 100}, .inputs = {}, .outputs = {}});
  const Table table = make_operator_view(ReportInput(capture));
  const std::size_t product = row_with(table, {{"operator", "MatMul.o_proj"}});
  EXPECT_NEAR(number(table, product, "efficiency"), 300 / 1500.0, 1e-12) << "of what it reads: no other roof is known";
  EXPECT_TRUE(is_empty(table, product, "bound_gflop_per_s"));
  EXPECT_TRUE(is_empty(table, row_with(table, {{"operator", "ArgMax.sample"}}), "efficiency"));
}

TEST(DeviceViewTest, LayersAddUpToTheStep) {
  const Table table = make_layer_view(ReportInput(test::device_capture().capture));
  int64_t sum_ns = 0;
  for (std::size_t r = 0; r < table.rows.size(); ++r) sum_ns += ns(table, r, "total_us");
  EXPECT_EQ(sum_ns, 8000);
  const std::size_t first = row_with(table, {{"layer", int64_t{0}}, {"phase", "decode"}});
  EXPECT_EQ(ns(table, first, "attention_us"), 1500 + 200) << "the device's, and the host's while that had nothing to do";
}

TEST(DeviceViewTest, AGapInWhichTheHostHandsOverIsNamed) {
  test::SmallCapture small(1, 10'000);
  small.step(7, Phase::kDecode, 1000, 9000, 1, 1);
  small.span(0, Zone::kAdd, 1000, 1900, 1, 0, {7, 0}).span(0, Zone::kAdd, 5000, 5100, 1, 0, {7, 1});
  small.ran(0, Zone::kAdd, 2000, 5000, 1, {7, 0}).ran(0, Zone::kAdd, 5500, 9000, 1, {7, 1});
  const Table table = make_free_view(ReportInput(small.capture));
  const std::size_t gap = row_with(table, {{"begin_us", 1.0}, {"step", int64_t{7}}});
  EXPECT_EQ(text(table, gap, "cause"), "handing over to the device");
  EXPECT_EQ(ns(table, gap, "length_us"), 1000);
  EXPECT_EQ(text(table, row_with(table, {{"begin_us", 5.0}, {"step", int64_t{7}}}), "cause"), "unknown");
}

TEST(DeviceViewTest, AGapInWhichTheHostWaitsForTheDeviceIsNamed) {
  const Table beside = make_free_view(ReportInput(test::device_capture().capture));
  EXPECT_EQ(text(beside, row_with(beside, {{"begin_us", 5.1}}), "cause"), "waiting for the device");
  // A device without a clock leaves no spans: all that is known of its time is that the host waited, whose core others took.
  test::SmallCapture small(1, 2'000'000);
  small.capture.ranks[0].num_preemptions = 3;
  small.step(7, Phase::kDecode, 1000, 1'900'000, 1, 1);
  small.span(0, Zone::kAdd, 1000, 5000, 1, 0, {7, 0}).span(0, Zone::kWaitDevice, 5000, 1'800'000, 0, 0, {7, kNoLayer});
  const Table alone = make_free_view(ReportInput(small.capture));
  EXPECT_EQ(text(alone, row_with(alone, {{"begin_us", 5.0}}), "cause"), "waiting for the device");
}

TEST(DeviceViewTest, TheDevicesTimeIsComputing) {
  const Table table = make_step_view(ReportInput(test::device_capture().capture));
  // The device's 3700, and of the host's sampling what is no wait and not beside the device.
  EXPECT_EQ(ns(table, 0, "computing_us"), 3700 + 600);
  EXPECT_EQ(ns(table, 0, "free_us"), 8000 - 4300);
}

}  // namespace
}  // namespace ferry
