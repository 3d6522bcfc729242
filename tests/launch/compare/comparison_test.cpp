#include "launch/compare/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace ferry {
namespace {

ResultRow steady_row(const std::string& name, double rate, double roof = 1e10) {
  return {.name = name,
          .tokens_per_s = {rate, rate * 1.01, rate * 0.99, rate * 1.005, rate * 0.995, rate * 1.002},
          .read_bytes_per_s = roof,
          .is_sound = true};
}

BenchResult result_of(std::vector<ResultRow> rows) {
  return {.rows = std::move(rows), .conditions = {{"threads", "2"}, {"model", "\"m\""}}, .version = ""};
}

bool has_warning(const BenchComparison& comparison, const std::string& part) {
  return std::any_of(comparison.warnings.begin(), comparison.warnings.end(),
                     [&](const std::string& warning) { return warning.find(part) != std::string::npos; });
}

TEST(Comparison, RowsMeetByName) {
  const BenchComparison comparison =
      compare_results(result_of({steady_row("a", 100), steady_row("b", 50), steady_row("c", 1)}),
                      result_of({steady_row("b", 60), steady_row("a", 100), steady_row("d", 1)}), {});
  ASSERT_EQ(comparison.rows.size(), 2U);
  EXPECT_EQ(comparison.rows[0].name, "a");
  EXPECT_FALSE(comparison.rows[0].test.is_different());
  EXPECT_EQ(comparison.rows[1].name, "b");
  EXPECT_TRUE(comparison.rows[1].test.is_different());
  EXPECT_NEAR(comparison.rows[1].test.ratio, 1.2, 1e-9);
  EXPECT_EQ(comparison.warnings.size(), 2U);
  EXPECT_TRUE(has_warning(comparison, "'c' is only in the first"));
  EXPECT_TRUE(has_warning(comparison, "'d' is only in the second"));
}

TEST(Comparison, FailsWhereARowIsCertainlySlowerThanAllowed) {
  const BenchResult before = result_of({steady_row("a", 100)});
  EXPECT_TRUE(compare_results(before, result_of({steady_row("a", 90)}), 0.95).fails());
  EXPECT_FALSE(compare_results(before, result_of({steady_row("a", 97)}), 0.95).fails()) << "slower, but not by as much";
  EXPECT_TRUE(compare_results(before, result_of({steady_row("a", 97)}), 0.99).fails());
  EXPECT_FALSE(compare_results(before, result_of({steady_row("a", 120)}), 0.95).fails());
  EXPECT_FALSE(compare_results(before, result_of({steady_row("a", 50)}), std::nullopt).fails());
  ResultRow unsure = steady_row("a", 90);
  unsure.tokens_per_s = {60, 80, 90, 100, 101, 102};
  EXPECT_FALSE(compare_results(before, result_of({unsure}), 0.95).fails()) << "nobody can tell";
}

TEST(Comparison, WarnsOfOtherConditionsAndAnotherMachine) {
  BenchResult other = result_of({steady_row("a", 100, 1.2e10)});
  other.conditions = {{"threads", "4"}, {"model", "\"m\""}, {"combine", "\"fast\""}};
  const BenchComparison comparison = compare_results(result_of({steady_row("a", 100)}), other, {});
  EXPECT_TRUE(has_warning(comparison, "threads differs: 2, then 4"));
  EXPECT_TRUE(has_warning(comparison, "combine differs: not said, then \"fast\""));
  EXPECT_TRUE(has_warning(comparison, "'a': the machine itself read 1.20 x"));
  EXPECT_EQ(comparison.warnings.size(), 3U);
  EXPECT_TRUE(
      compare_results(result_of({steady_row("a", 100)}), result_of({steady_row("a", 100, 1.04e10)}), {}).warnings.empty());
}

TEST(Comparison, WarnsOfFiguresThatWereNotSound) {
  ResultRow shaky = steady_row("a", 100);
  shaky.is_sound = false;
  EXPECT_TRUE(has_warning(compare_results(result_of({steady_row("a", 100)}), result_of({shaky}), {}), "not steady"));
}

TEST(Comparison, NeedsARowInCommon) {
  EXPECT_THROW(compare_results(result_of({steady_row("a", 1)}), result_of({steady_row("b", 1)}), {}), Error);
}

TEST(Comparison, SaysTheSameInWordsAndInJson) {
  ResultRow few = steady_row("few", 10);
  few.tokens_per_s = {10, 11, 12};
  const BenchComparison comparison = compare_results(result_of({steady_row("a", 100), steady_row("b", 10), few}),
                                                     result_of({steady_row("a", 80), steady_row("b", 10), few}), 0.9);
  const std::vector<std::string> lines = comparison_lines(comparison);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_TRUE(lines[1].ends_with("SLOWER, FAILS")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with("no difference seen")) << lines[2];
  EXPECT_NE(lines[3].find("too few samples"), std::string::npos) << lines[3];
  const nlohmann::ordered_json object = comparison_json(comparison);
  EXPECT_EQ(object["fails"], true);
  EXPECT_EQ(object["rows"][0]["is_different"], true);
  EXPECT_EQ(object["rows"][2]["interval"], nullptr);
}

}  // namespace
}  // namespace ferry
