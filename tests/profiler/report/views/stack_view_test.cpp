#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/report/views/views.h"
#include "tests/support/sampled_stacks.h"

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::Not;
using Row = std::vector<Table::Cell>;

/// The row of a function of rank 0 in that phase.
const Row* row_of(const Table& table, int64_t rank, const std::string& phase, const std::string& function) {
  for (const Row& row : table.rows) {
    if (row[0] == Table::Cell(rank) && row[1] == Table::Cell(phase) && row[2] == Table::Cell(function)) return &row;
  }
  return nullptr;
}

void expect_times(const Row* row, double self_ms, double total_ms, int64_t samples) {
  ASSERT_NE(row, nullptr);
  EXPECT_EQ((*row)[4], Table::Cell(self_ms));
  EXPECT_EQ((*row)[5], Table::Cell(total_ms));
  EXPECT_EQ((*row)[6], Table::Cell(samples));
}

TEST(StackViewTest, SelfAndTotalByFunctionAndPhase) {
  const ReportInput input(test::sampled_stacks());
  const Table table = make_stack_view(input);
  expect_times(row_of(table, 0, "decode", "experts; all"), 3, 3, 2);
  expect_times(row_of(table, 0, "decode", "attention"), 1, 1, 1);
  expect_times(row_of(table, 0, "decode", "step(int)"), 0, 4, 3);
  expect_times(row_of(table, 0, "prefill", "step(int)"), 2, 2, 1);
  expect_times(row_of(table, 0, "outside", "main"), 1, 1, 1);
  EXPECT_EQ(row_of(table, 0, "mixed", "main"), nullptr);
}

TEST(StackViewTest, WhoCallsItselfCountsOnce) {
  const ReportInput input(test::sampled_stacks());
  expect_times(row_of(make_stack_view(input), 1, "decode", "again"), 1, 1, 1);
}

TEST(StackViewTest, TellsWhatIsMissing) {
  const ReportInput input(test::sampled_stacks());
  EXPECT_THAT(make_stack_view(input).note, HasSubstr("rank 1: 4 samples lost"));
}

TEST(StackViewTest, TellsWhereSamplesAreFew) {
  EXPECT_THAT(make_stack_view(ReportInput(test::sampled_stacks())).note, Not(HasSubstr("periods")));
  Capture capture = test::sampled_stacks();
  for (StackSample& sample : capture.ranks[0].stacks.samples) sample.periods = 7;
  EXPECT_THAT(make_stack_view(ReportInput(std::move(capture))).note, HasSubstr("rank 0: a sample stands for 7 periods"));
}

TEST(StackViewTest, StacksFoldWithTheOutermostFirst) {
  const ReportInput input(test::sampled_stacks());
  const Table table = make_folded_stack_view(input);
  ASSERT_EQ(table.rows.size(), 5U);
  EXPECT_EQ(table.rows[0], (Row{int64_t{0}, "decode", "main;step(int);experts: all", 3.0, int64_t{2}}));
  double sum = 0;
  for (const Row& row : table.rows) sum += std::get<double>(row[3]);
  EXPECT_DOUBLE_EQ(sum, 8) << "every period once";
}

TEST(StackViewTest, OnlyWhereTheyWereAskedFor) {
  const auto has = [](const ReportInput& input) {
    const std::vector<Table> tables = make_views(input);
    return std::ranges::any_of(tables, [](const Table& table) { return table.id == "stack"; });
  };
  EXPECT_TRUE(has(ReportInput(test::sampled_stacks())));
  EXPECT_FALSE(has(ReportInput(test::SmallCapture(1, 1000).capture)));
}

}  // namespace
}  // namespace ferry
