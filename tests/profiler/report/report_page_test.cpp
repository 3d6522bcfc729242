#include "profiler/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

namespace ferry {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"report-data\">";

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// What stands between the data's tags, as a browser finds it: up to the first "</script".
std::string data_text(const std::string& page) {
  const std::size_t begin = page.find(kDataBegin) + kDataBegin.size();
  return page.substr(begin, page.find("</script", begin) - begin);
}

ordered_json read_data(const std::string& page) { return ordered_json::parse(data_text(page)); }

Table make_table(const std::string& id = "phase") {
  return {.id = id,
          .title = "Phases",
          .note = "How to read it.",
          .columns = {{"phase"}, {"steps"}, {"wall_us", 3}, {"share", 4}},
          .rows = {{std::string("decode"), int64_t{13}, 1234.56789, 0.33333},
                   {std::string("idle"), int64_t{0}, std::monostate{}, 0.0}}};
}

/// The page without its data.
std::string frame_of(const std::string& page) {
  const std::string data = data_text(page);
  return std::string(page).replace(page.find(data), data.size(), "");
}

TEST(ReportPage, EmbedsTablesAsTheyAre) {
  const Table table = make_table();
  const ordered_json data = read_data(make_report_page("a run", {}, {table, make_table("step")}, nullptr));
  ASSERT_EQ(data["tables"].size(), 2U);
  ordered_json expected = to_json(table);
  expected["num_rows"] = 2;
  EXPECT_EQ(data["tables"][0], expected);
  EXPECT_EQ(data["tables"][1]["id"], "step");
  EXPECT_EQ(data["title"], "a run");
}

TEST(ReportPage, EmbedsFindingsInTheirOrder) {
  const std::vector<Finding> findings = {{Finding::Severity::kProblem, "slow_rank", "Rank 2 is late.", "straggler"},
                                         {Finding::Severity::kNotice, "starved", "Nothing ran.", "phase"},
                                         {Finding::Severity::kInfo, "clock", "Clocks agree.", "run"}};
  const ordered_json data = read_data(make_report_page("a run", findings, {}, nullptr));
  EXPECT_EQ(data["findings"], ordered_json::parse(R"([
    {"severity": "problem", "kind": "slow_rank", "text": "Rank 2 is late.", "table": "straggler"},
    {"severity": "notice", "kind": "starved", "text": "Nothing ran.", "table": "phase"},
    {"severity": "info", "kind": "clock", "text": "Clocks agree.", "table": "run"}])"));
  EXPECT_TRUE(data["tables"].empty());
}

TEST(ReportPage, EmbedsWhatToDoAboutAFinding) {
  Finding finding{Finding::Severity::kNotice, "idle_cores", "A core has nothing to do.", "run"};
  finding.actions = {{.kind = "threads",
                      .text = "compute with a thread on every core",
                      .option = "--threads",
                      .from = "1",
                      .to = "2",
                      .command = "ferry serve --threads 2",
                      .metric = "decode tokens/s",
                      .before = 9000,
                      .after = 12000,
                      .saved_ms = 12.5,
                      .saved_share = 0.25}};
  const ordered_json data = read_data(make_report_page("a run", {finding}, {}, nullptr));
  ASSERT_EQ(data["findings"][0]["actions"].size(), 1U);
  const ordered_json& action = data["findings"][0]["actions"][0];
  EXPECT_EQ(action["text"], "compute with a thread on every core");
  EXPECT_EQ(action["command"], "ferry serve --threads 2");
  EXPECT_EQ(action["prediction"], "decode tokens/s from 9000 to 12000, 33 % more ± 0");
  EXPECT_EQ(action["saved_ms"], 12.5);
  EXPECT_EQ(action["saved_share"], 0.25);
}

TEST(ReportPage, HostileNamesStayData) {
  const std::vector<std::string> names = {"</script><script>alert(1)</script>",
                                          "<!--<script>",
                                          "]]>&amp;&#60;",
                                          "\u2028 and \u2029",
                                          "\"quoted\\\" 'too'",
                                          "{{data}}{{script}}",
                                          "\x01\x1f\t\n",
                                          std::string("a\0b", 3)};
  Table table = make_table();
  table.rows.clear();
  for (const std::string& name : names) {
    table.rows.push_back({name, int64_t{1}, 1.0, 1.0});
    const std::string page = make_report_page(name, {{Finding::Severity::kInfo, name, name, name}}, {table}, nullptr);
    EXPECT_EQ(count_of(page, "</script>"), 2U) << name;
    EXPECT_EQ(count_of(page, "<script"), 2U) << name;
    EXPECT_THAT(data_text(page), Not(HasSubstr("\u2028")));
    EXPECT_THAT(data_text(page), Not(HasSubstr("<")));
    const ordered_json data = read_data(page);
    EXPECT_EQ(data["title"], name);
    EXPECT_EQ(data["findings"][0]["text"], name);
    EXPECT_EQ(data["tables"][0]["rows"].back()[0], name);
  }
}

TEST(ReportPage, TitleIsEscapedInTheHead) {
  const std::string page = make_report_page("a <b> & \"c\"", {}, {}, nullptr);
  EXPECT_THAT(page, HasSubstr("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"));
}

TEST(ReportPage, BytesThatAreNoUtf8AreReplaced) {
  Table table = make_table();
  table.rows = {{std::string("host\xff\xfe"), int64_t{1}, 1.0, 1.0}};
  const ordered_json data = read_data(make_report_page("a run", {}, {table}, nullptr));
  EXPECT_EQ(data["tables"][0]["rows"][0][0], "host\uFFFD\uFFFD");
}

TEST(ReportPage, WholeNumbersBeyondJavaScriptsAreStrings) {
  Table table = make_table();
  const int64_t last = (int64_t{1} << 53) - 1;
  table.rows = {{std::string("a"), last, 1.0, 1.0},
                {std::string("b"), last + 2, 1.0, 1.0},
                {std::string("c"), std::numeric_limits<int64_t>::min(), 1.0, 1.0}};
  const ordered_json rows = read_data(make_report_page("a run", {}, {table}, nullptr))["tables"][0]["rows"];
  EXPECT_EQ(rows[0][1], last);
  EXPECT_EQ(rows[1][1], "9007199254740993");
  EXPECT_EQ(rows[2][1], "-9223372036854775808");
}

TEST(ReportPage, FetchesNothing) {
  const std::string frame = frame_of(make_report_page("a run", {}, {make_table()}, nullptr));
  for (const char* part : {"http://", "https://", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", " src="}) {
    EXPECT_EQ(count_of(frame, part), 0U) << part;
  }
  EXPECT_THAT(frame, HasSubstr("default-src 'none'"));
  EXPECT_FALSE(std::regex_search(frame, std::regex(R"(\{\{(title|style|data|script)\}\})")));
}

TEST(ReportPage, EmbedsTimelinesAsTheyAre) {
  const ordered_json timelines = {{"num_steps", 1}, {"steps", {{{"step", 7}, {"group", "</script>"}}}}};
  EXPECT_EQ(read_data(make_report_page("a run", {}, {}, timelines))["timelines"], timelines);
  EXPECT_EQ(read_data(make_report_page("a run", {}, {}, nullptr))["timelines"], nullptr);
}

TEST(ReportPage, LongTablesAreCutAndSaySo) {
  Table step = make_table("step"), expert = make_table("expert");
  for (int64_t i = 0; i < 9001; ++i) {
    step.rows.push_back({std::string("decode"), i, 0.5 + static_cast<double>(i), 0.25});
    expert.rows.push_back({std::string("decode"), i, 0.5, 0.25});
  }
  const ordered_json tables = read_data(make_report_page("a run", {}, {step, expert}, nullptr))["tables"];
  EXPECT_EQ(tables[0]["num_rows"], 9003);
  EXPECT_LT(tables[0]["rows"].size(), 9000U);
  EXPECT_EQ(tables[0]["rows"][2], ordered_json::parse(R"(["decode", 0, 0.5, 0.25])"));
  EXPECT_EQ(tables[1]["rows"].size(), 9003U) << "a heat map needs all its cells";
}

TEST(ReportPage, TablesLeaveRoomForTimelines) {
  std::vector<Table> tables;
  for (int t = 0; t < 9; ++t) {
    Table table = make_table("table_" + std::to_string(t));
    const std::string name(61 * static_cast<std::size_t>(t), 'n');
    for (int64_t i = 0; i < 12'011; ++i) table.rows.push_back({name, i * 1'000'003, static_cast<double>(i) / 7, 0.125});
    tables.push_back(table);
  }
  const std::string page = make_report_page("a run", {}, tables, nullptr);
  EXPECT_LT(page.size(), 1'800'000U);
  const ordered_json data = read_data(page);
  for (const ordered_json& table : data["tables"]) {
    EXPECT_EQ(table["num_rows"], 12'013);
    EXPECT_GT(table["rows"].size(), 50U);
  }
}

}  // namespace
}  // namespace ferry
