#include "profiler/report/findings/action_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "profiler/report/report.h"

namespace ferry {
namespace {

Action threads() {
  return {.kind = "threads",
          .text = "compute with a thread on every core",
          .option = "--threads",
          .from = "1",
          .to = "2",
          .command = "ferry serve --threads 2",
          .metric = "decode tokens/s",
          .before = 1000,
          .after = 1250,
          .saved_ms = 12,
          .saved_share = 0.2,
          .error_share = 0.04,
          .assumes = "nothing"};
}

Finding finding(const char* kind, std::vector<Action> actions) {
  return {.severity = Finding::Severity::kNotice,
          .kind = kind,
          .text = "Something.",
          .table = "run",
          .actions = std::move(actions)};
}

TEST(ActionTextTest, ALineSaysWhatToTryAndWhatItBrings) {
  EXPECT_EQ(action_text(threads()),
            "try: compute with a thread on every core (predicted: decode tokens/s from 1000 to 1250, 25 % more ± 5): "
            "ferry serve --threads 2");
  Action ttft = threads();
  ttft.metric = "TTFT p50 ms", ttft.before = 40, ttft.after = 30, ttft.command = "";
  EXPECT_EQ(action_text(ttft),
            "try: compute with a thread on every core (predicted: TTFT p50 ms from 40 to 30, 25 % less ± 4)");
}

TEST(ActionTextTest, ManyTimesAsMuchIsAFactorAndSoIsItsError) {
  Action ranks = threads();
  ranks.after = 26'390, ranks.command = "";
  EXPECT_EQ(action_text(ranks),
            "try: compute with a thread on every core (predicted: decode tokens/s from 1000 to 26390, 26 × as many ± 1)");
}

TEST(ActionTextTest, JsonHasEveryField) {
  const nlohmann::ordered_json json = actions_json({threads()});
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0].dump(),
            R"({"kind":"threads","text":"compute with a thread on every core","option":"--threads","from":"1","to":"2",)"
            R"("command":"ferry serve --threads 2","metric":"decode tokens/s","before":1000.0,"after":1250.0,)"
            R"("prediction":"decode tokens/s from 1000 to 1250, 25 % more ± 5","saved_ms":12.0,)"
            R"("saved_share":0.2,"error_share":0.04,"assumes":"nothing"})");
}

TEST(ActionTextTest, TheTableHasThoseOfAllFindingsBestFirst) {
  Action better = threads();
  better.kind = "ranks", better.saved_share = 0.5;
  const Table table = make_action_view({finding("a", {threads()}), finding("b", {}), finding("c", {better})});
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(std::get<std::string>(table.rows[0][0]), "c");
  EXPECT_EQ(std::get<std::string>(table.rows[0][1]), "ranks");
  EXPECT_EQ(std::get<std::string>(table.rows[1][0]), "a");
  EXPECT_TRUE(make_action_view({finding("a", {})}).rows.empty());
}

TEST(ActionTextTest, AReportHasThemBelowTheirFindingAndSaysNothingOfOthers) {
  const std::string text = make_report_text({finding("a", {threads()}), finding("b", {})}, {});
  EXPECT_EQ(text,
            "Findings\n  notice: Something. [run]\n"
            "    try: compute with a thread on every core (predicted: decode tokens/s from 1000 to 1250, 25 % more ± 5): "
            "ferry serve --threads 2\n"
            "  notice: Something. [run]\n");
}

}  // namespace
}  // namespace ferry
