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

/// [rows, 10] x [10, 8] in values of 2 bytes.
OperatorFacts o_proj_facts() {
  return {.zone = Zone::kOProj, .flop = {.per_row = 160}, .bytes = {.fixed = 160, .per_row = 36}, .inputs = {}, .outputs = {}};
}

TEST(OperatorViewTest, TimesAndRooflineByHand) {
  test::SmallCapture small(2, 10000);
  CaptureInfo& info = small.capture.info;
  info.model.operators = {o_proj_facts()};
  info.flops_per_s = 1e9;
  info.read_bytes_per_s = 1e9;
  small.step(0, Phase::kDecode, 0, 9000, 1, 1);
  small.span(0, Zone::kOProj, 100, 400, 1, 0, {0, 0});    // 300
  small.span(0, Zone::kOProj, 1000, 1500, 1, 0, {0, 1});  // 500
  small.span(0, Zone::kAdd, 2000, 2200, 1, 0, {0, 1});
  small.span(1, Zone::kOProj, 100, 200, 1, 0, {0, 0});
  const ReportInput input(small.capture);
  const Table table = make_operator_view(input);
  const std::size_t o_proj = row_with(table, {{"operator", "MatMul.o_proj"}, {"rank", int64_t{0}}});
  EXPECT_EQ(number(table, o_proj, "count"), 2);
  EXPECT_EQ(ns(table, o_proj, "total_us"), 800);
  EXPECT_EQ(ns(table, o_proj, "min_us"), 300);
  EXPECT_EQ(ns(table, o_proj, "avg_us"), 400);
  EXPECT_EQ(ns(table, o_proj, "max_us"), 500);
  EXPECT_DOUBLE_EQ(number(table, o_proj, "share"), 0.8);
  // [1, 10] x [10, 8] twice: 2 x 160 FLOP; 2 x (80 weights + 18 activations) x 2 bytes.
  EXPECT_DOUBLE_EQ(number(table, o_proj, "flop"), 320);
  EXPECT_DOUBLE_EQ(number(table, o_proj, "bytes"), 392);
  EXPECT_DOUBLE_EQ(number(table, o_proj, "gflop_per_s"), 320 / 800.0);
  EXPECT_DOUBLE_EQ(number(table, o_proj, "gb_per_s"), 392 / 800.0);
  EXPECT_DOUBLE_EQ(number(table, o_proj, "intensity_flop_per_byte"), 320 / 392.0);
  EXPECT_NEAR(number(table, o_proj, "bound_gflop_per_s"), 320 / 392.0, 1e-12);  // the memory's
  EXPECT_NEAR(number(table, o_proj, "efficiency"), 392 / 800.0, 1e-12);
  EXPECT_EQ(number(table, row_with(table, {{"operator", "MatMul.o_proj"}, {"rank", int64_t{1}}}), "count"), 1);
}

TEST(OperatorViewTest, WithoutRoofsThereIsNoBound) {
  test::SmallCapture small(1, 1000);
  small.capture.info.model.operators = {o_proj_facts()};
  small.step(0, Phase::kDecode, 0, 900, 1, 1).span(0, Zone::kOProj, 100, 400, 1, 0, {0, 0});
  const ReportInput input(small.capture);
  const Table table = make_operator_view(input);
  EXPECT_TRUE(is_empty(table, 0, "bound_gflop_per_s"));
  EXPECT_TRUE(is_empty(table, 0, "efficiency"));
  EXPECT_FALSE(is_empty(table, 0, "gflop_per_s"));
}

TEST(OperatorViewTest, WaitsAndNestedOperatorsAreNotCountedTwice) {
  test::SmallCapture small(1, 1000);
  small.step(0, Phase::kDecode, 0, 900, 1, 1);
  small.span(0, Zone::kExperts, 100, 600, 1, 0, {0, 0});
  small.span(0, Zone::kGroupedGateUp, 150, 450, 1, 1, {0, 0});
  small.span(0, Zone::kWaitLock, 200, 300, 0, 0, {0, 0});
  const ReportInput input(small.capture);
  const Table table = make_operator_view(input);
  ASSERT_EQ(table.rows.size(), 2U);  // no wait, no step
  EXPECT_EQ(ns(table, row_with(table, {{"operator", "MoeExperts"}, {"kind", "host"}}), "total_us"), 200);
  EXPECT_EQ(ns(table, row_with(table, {{"operator", "GroupedMatmulSwiglu"}, {"kind", "compute"}}), "total_us"), 200);
}

}  // namespace
}  // namespace ferry
