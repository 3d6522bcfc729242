#include "profiler/report/views/capture_diff.h"

#include <gtest/gtest.h>

#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::is_empty;
using test::ns;
using test::number;
using test::row_with;
using test::text;

/// Decode steps of 1000 ns whose attention takes `attention_ns`, one each.
Capture decodes(const std::vector<uint64_t>& attention_ns, Zone other = Zone::kRouter) {
  test::SmallCapture small(1, 1000 * attention_ns.size());
  for (std::size_t s = 0; s < attention_ns.size(); ++s) {
    const uint64_t t = 1000 * s;
    const test::SmallCapture::Where where{static_cast<uint32_t>(s), 0};
    small.step(where.step, Phase::kDecode, t, t + 1000, 1, 1);
    small.span(0, Zone::kAttention, t, t + attention_ns[s], 1, 1, where);
    small.span(0, other, t + 900, t + 950, 1, 0, where);
  }
  return small.capture;
}

const Table& table_of(const std::vector<Table>& tables, const std::string& id) {
  for (const Table& table : tables) {
    if (table.id == id) return table;
  }
  ADD_FAILURE() << "no table " << id;
  return tables.at(0);
}

TEST(CaptureDiffTest, NamesWhatGotSlower) {
  const ReportInput before(decodes({100, 104, 96, 100})), after(decodes({200, 206, 194, 200, 200}));
  const std::vector<Table> tables = compare_captures(before, after);
  const Table& table = table_of(tables, "operator_diff");
  EXPECT_EQ(text(table, 0, "operator"), "FusedInferAttentionScore");  // the largest difference comes first
  EXPECT_EQ(number(table, 0, "before_steps"), 4);
  EXPECT_EQ(number(table, 0, "after_steps"), 5);
  EXPECT_EQ(ns(table, 0, "before_us"), 100);
  EXPECT_EQ(ns(table, 0, "after_us"), 200);
  EXPECT_EQ(ns(table, 0, "delta_us"), 100);
  EXPECT_DOUBLE_EQ(number(table, 0, "delta_share"), 1);
  EXPECT_EQ(ns(table, 0, "before_median_us"), 100);
  EXPECT_EQ(ns(table, 0, "after_min_us"), 194);
  EXPECT_LT(number(table, 0, "p"), 1e-4);
  EXPECT_EQ(text(table, 0, "verdict"), "slower");
  const std::size_t router = row_with(table, {{"operator", "MatMul.router"}});
  EXPECT_EQ(ns(table, router, "delta_us"), 0);
  EXPECT_TRUE(is_empty(table, router, "t"));
  EXPECT_EQ(text(table, router, "verdict"), "same");
  const Table& types = table_of(tables, "layer_type_diff");
  EXPECT_EQ(ns(types, row_with(types, {{"layer_type", "full_attention"}}), "delta_us"), 100);
  const Table& phases = table_of(tables, "phase_diff");
  EXPECT_EQ(ns(phases, row_with(phases, {{"part", "wall"}}), "delta_us"), 0);
  EXPECT_EQ(ns(phases, row_with(phases, {{"part", "computing"}}), "delta_us"), 100);
  EXPECT_EQ(ns(phases, row_with(phases, {{"part", "free"}}), "delta_us"), -100);
}

TEST(CaptureDiffTest, NoiseIsNoDifferenceAndNoSameness) {
  const ReportInput before(decodes({100, 180, 120, 150})), after(decodes({170, 110, 130, 160}));
  const Table table = compare_captures(before, after).at(2);
  EXPECT_EQ(text(table, row_with(table, {{"operator", "FusedInferAttentionScore"}}), "verdict"), "not certain");
}

TEST(CaptureDiffTest, OperatorsComeAndGo) {
  const ReportInput before(decodes({100, 102}, Zone::kRouter)), after(decodes({100, 102}, Zone::kGatingTopK));
  const Table table = compare_captures(before, after).at(2);
  EXPECT_EQ(text(table, row_with(table, {{"operator", "MatMul.router"}}), "verdict"), "removed");
  const std::size_t added = row_with(table, {{"operator", "MoeGatingTopK"}});
  EXPECT_EQ(text(table, added, "verdict"), "added");
  EXPECT_TRUE(is_empty(table, added, "before_us"));
}

TEST(CaptureDiffTest, ASlowRankShowsInOperatorsAndTransfers) {
  const ReportInput before(make_made_capture({.num_decode_steps = 9}));
  const ReportInput after(make_made_capture({.num_decode_steps = 9, .slow_rank = 2, .slow_factor = 4}));
  const std::vector<Table> tables = compare_captures(before, after);
  const Table& operators = table_of(tables, "operator_diff");
  EXPECT_EQ(text(operators, 0, "operator").substr(0, 13), "GroupedMatmul");
  const Table& transfers = table_of(tables, "transfer_diff");
  EXPECT_GT(number(transfers, row_with(transfers, {{"operator", "hcom_alltoallv.combine.receive"}, {"phase", "prefill"}}),
                   "delta_us"),
            0);
}

}  // namespace
}  // namespace ferry
