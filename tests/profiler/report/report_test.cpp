#include "profiler/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "profiler/report/views/views.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_capture.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

using testing::HasSubstr;

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ReportTest, EveryViewHasItsIdAndWholeRows) {
  for (const int32_t world_size : {1, 3}) {
    const ReportInput input(make_made_capture({.world_size = world_size}));
    const std::vector<Table> tables = make_views(input);
    std::vector<std::string> ids;
    for (const Table& table : tables) {
      ids.push_back(table.id);
      EXPECT_FALSE(table.title.empty());
      for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.id;
    }
    EXPECT_EQ(ids, (std::vector<std::string>{"critical_path", "run", "phase", "draft", "draft_place", "step", "layer",
                                             "layer_type", "kernel", "kernel_layer", "operator", "transfer", "traffic",
                                             "expert", "balance", "hot_expert", "straggler", "request", "free"}));
  }
}

TEST(ReportTest, AnEmptyCaptureHasEmptyViews) {
  Capture capture;
  capture.ranks.resize(1);
  const ReportInput input(capture);
  for (const Table& table : make_views(input)) {
    for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << table.id;
  }
  EXPECT_FALSE(find_problems(input).empty());
}

TEST(ReportTest, WritesTextJsonPageAndCsv) {
  const test::TempFolder folder;
  const ReportInput input(make_made_capture({.world_size = 4, .num_prefill_steps = 9, .slow_rank = 3, .slow_factor = 5}));
  write_report(folder.path(), input);
  const std::string text = read(folder.path() / "report.txt");
  EXPECT_LT(text.find("Rank 3"), text.find("Phases"));  // findings come first
  EXPECT_THAT(text, HasSubstr("Who is waited for\n"));
  const nlohmann::json json = nlohmann::json::parse(read(folder.path() / "report.json"));
  EXPECT_EQ(json.at("findings").at(0).at("kind"), "slow_rank");
  EXPECT_EQ(json.at("tables").size(), make_views(input).size());
  EXPECT_THAT(read(folder.path() / "report.html"), HasSubstr("made"));
  for (const Table& table : make_views(input)) EXPECT_EQ(read(folder.path() / "csv" / (table.id + ".csv")), to_csv(table));
}

TEST(ReportTest, WritesThroughNoLink) {
  const ReportInput input(make_made_capture());
  const test::TempFolder outside;
  for (const char* name : {"report.txt", "report.html", "csv", "csv/step.csv"}) {
    const test::TempFolder folder;
    const std::filesystem::path link = folder.path() / name;
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_symlink(outside.path() / "target", link);
    test::expect_error([&] { write_report(folder.path(), input); }, ErrorCode::kFailedPrecondition,
                       {name, "is a symbolic link; allowed: none in a capture"});
  }
  EXPECT_TRUE(std::filesystem::is_empty(outside.path()));
}

TEST(ReportTest, SaysWhereItCannotWrite) {
  const ReportInput input(make_made_capture());
  test::expect_error([&] { write_report("/proc/no-such-folder", input); }, ErrorCode::kUnavailable,
                     {"/proc/no-such-folder/csv"});
}

}  // namespace
}  // namespace ferry
