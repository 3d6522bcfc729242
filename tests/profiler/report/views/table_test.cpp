#include "profiler/report/views/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

Table sample() {
  return {.id = "sample",
          .title = "Samples",
          .note = "",
          .columns = {{"name", 0}, {"count", 0}, {"time_us", 3}},
          .rows = {{"a, \"b\"", int64_t{7}, 1.23456}, {"naïve…", int64_t{123456}, std::monostate()}}};
}

TEST(TableText, NamesDoNotCommandTheTerminal) {
  const Table table{.id = "t",
                    .title = "T\x1b[2J",
                    .columns = {{"host"}, {"n"}},
                    .rows = {{std::string("a\x1b[31m\nb\xc2\x9b"), int64_t{1}}}};
  EXPECT_EQ(to_text(table), "T\\x1b[2J\nhost                n\na\\x1b[31m\\x0ab\\x9b  1\n");
}

TEST(Table, CsvQuotesAndRounds) {
  EXPECT_EQ(to_csv(sample()), "name,count,time_us\n\"a, \"\"b\"\"\",7,1.235\nnaïve…,123456,\n");
}

TEST(Table, CsvOfStrangersCommandsNeitherTerminalsNorSpreadsheets) {
  const auto field = [](const std::string& text) {
    const std::string csv = to_csv({.columns = {{"host"}}, .rows = {{text}}});
    return csv.substr(5, csv.size() - 6);
  };
  EXPECT_EQ(field("a\x1b[31m\r\nb"), "\"a\\x1b[31m\\x0d\nb\"");
  EXPECT_EQ(field("=1+1"), "'=1+1");
  EXPECT_EQ(field("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(field("+1"), "'+1");
  EXPECT_EQ(field("-2+3|cmd"), "'-2+3|cmd");
  EXPECT_EQ(field("--token-budget"), "--token-budget") << "an option";
  EXPECT_EQ(to_csv({.columns = {{"x", 1}}, .rows = {{-1.5}, {int64_t{-2}}}}), "x\n-1.5\n-2\n");
}

TEST(Table, TextAlignsByCharactersAndSaysWhatItLeavesOut) {
  EXPECT_EQ(to_text(sample()),
            "Samples\n"
            "name     count  time_us\n"
            "a, \"b\"       7    1.235\n"
            "naïve…  123456\n");
  const std::string cut = to_text(sample(), 1);
  EXPECT_NE(cut.find("1 more rows in csv/sample.csv"), std::string::npos) << cut;
}

TEST(Table, JsonHasTheNumbersOfTheCsv) {
  const nlohmann::ordered_json json = to_json(sample());
  EXPECT_EQ(json["rows"][0][2], 1.235);
  EXPECT_EQ(json["rows"][0][1], 7);
  EXPECT_TRUE(json["rows"][1][2].is_null());
  EXPECT_EQ(json["columns"][2]["name"], "time_us");
}

}  // namespace
}  // namespace ferry
