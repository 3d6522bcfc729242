#include "profiler/export/ascend_profile.h"

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "profiler/report/timeline/breakdown.h"
#include "profiler/report/timeline/step_slices.h"
#include "tests/profiler/export/ascend_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_capture.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::AscendFolders;
using test::us_to_ns;

TEST(AscendProfile, OneFolderARankWithAllFiles) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  ASSERT_EQ(folders.size(), 3U);
  EXPECT_EQ(folders.folder(1).filename(), "beta_4001_20251009085320000_ascend_pt");
  for (int32_t r = 0; r < 3; ++r) {
    const std::set<std::string> expected = {"trace_view.json",
                                            "kernel_details.csv",
                                            "operator_details.csv",
                                            "op_statistic.csv",
                                            "step_trace_time.csv",
                                            "communication.json",
                                            "communication_matrix.json",
                                            "api_statistic.csv",
                                            "memory_record.csv",
                                            "operator_memory.csv",
                                            "npu_module_mem.csv",
                                            "analysis.db",
                                            "ascend_pytorch_profiler_" + std::to_string(r) + ".db"};
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folders.output(r, ""))) files.insert(entry.path().filename());
    EXPECT_EQ(files, expected);
  }
}

TEST(AscendProfile, RanksOfOneProcessAndOddHostNamesGetFoldersOfTheirOwn) {
  Capture capture = make_made_capture({.world_size = 3});
  for (RankCapture& rank : capture.ranks) {
    rank.host = "a_b/../c{d}";
    rank.pid = 77;
  }
  const AscendFolders folders{ReportInput(capture)};
  ASSERT_EQ(folders.size(), 3U);
  EXPECT_EQ(folders.folder(0).filename(), "a-b-..-c-d-_77_20251009085320000_ascend_pt");
  EXPECT_EQ(folders.folder(2).filename(), "a-b-..-c-d-_77-2_20251009085320000_ascend_pt");
}

TEST(AscendProfile, LostRankHasNoFolder) {
  Capture capture = make_made_capture({.world_size = 3});
  capture.ranks[1].threads.clear();
  const AscendFolders folders{ReportInput(capture)};
  EXPECT_EQ(folders.size(), 2U);
  EXPECT_THROW(folders.folder(1), std::out_of_range);
}

TEST(AscendProfile, SmallJsonsSayWhoTheRankIs) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  const json info = json::parse(test::read_text(folders.folder(2) / "profiler_info_2.json"));
  EXPECT_EQ(info.at("rank_id"), 2);
  EXPECT_EQ(info.at("config").at("experimental_config").at("_profiler_level"), "Level1");
  EXPECT_EQ(info.at("config").at("experimental_config").at("_export_type"), json({"text", "db"}));
  const json metadata = json::parse(test::read_text(folders.folder(2) / "profiler_metadata.json"));
  const json& layout = metadata.at("distributed_args");
  for (const char* const key : {"tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size",
                                "context_parallel_size", "expert_model_parallel_size", "world_size"}) {
    EXPECT_TRUE(layout.at(key).is_number_integer()) << key;
  }
  EXPECT_TRUE(layout.at("sequence_parallel").is_boolean());
  // The readers accept no other world.
  EXPECT_EQ(layout["world_size"].get<int>(), layout["tensor_model_parallel_size"].get<int>() *
                                                 layout["pipeline_model_parallel_size"].get<int>() *
                                                 layout["data_parallel_size"].get<int>());
  ASSERT_EQ(metadata.at("parallel_group_info").size(), 3U);
  EXPECT_EQ(metadata["parallel_group_info"].at("ep").at("group_name"), "exp");
  for (const json& group : metadata["parallel_group_info"]) EXPECT_EQ(group.at("global_ranks"), json({0, 1, 2}));
}

TEST(AscendProfile, StepsDivideExactlyAsTheBreakdownDoes) {
  const ReportInput input(make_made_capture({.world_size = 4, .num_decode_steps = 7, .slow_rank = 2, .slow_factor = 3.7}));
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 4; ++r) {
    EXPECT_THAT(
        test::read_text(folders.output(r, "step_trace_time.csv")),
        testing::StartsWith("Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
                            "Communication(Not Overlapped and Exclude Receive),Preparing\n"));
    const auto rows = folders.csv(r, "step_trace_time.csv");
    ASSERT_EQ(rows.size(), 9U);
    int64_t bubbles_ns = 0;
    for (std::size_t s = 0; s < rows.size(); ++s) {
      const test::CsvRow& row = rows[s];
      const StepInfo& step = input.timeline.steps[s];
      const Breakdown b = break_down(input.activity[static_cast<std::size_t>(r)], {step.begin_ns, step.end_ns});
      const auto ns = [&](const char* column) { return us_to_ns(row.at(column)); };
      EXPECT_EQ(row.at("Step"), std::to_string(step.step));
      EXPECT_EQ(ns("Computing"), b.computing);
      EXPECT_EQ(ns("Communication"), b.communication);
      EXPECT_EQ(ns("Overlapped"), b.overlapped);
      EXPECT_EQ(ns("Communication(Not Overlapped)"), b.exposed);
      EXPECT_EQ(ns("Free"), b.free);
      EXPECT_EQ(ns("Computing") + ns("Communication(Not Overlapped)") + ns("Free"), step.end_ns - step.begin_ns);
      EXPECT_EQ(ns("Stage") + ns("Bubble"), step.end_ns - step.begin_ns);
      EXPECT_EQ(ns("Communication(Not Overlapped and Exclude Receive)"), std::max<int64_t>(b.exposed - ns("Bubble"), 0));
      bubbles_ns += ns("Bubble");
    }
    int64_t waits_ns = 0;
    for (const Slice& slice : input.timeline.slices) {
      const bool is_own = input.timeline.lanes[static_cast<std::size_t>(slice.lane)].rank == r;
      if (is_own && is_peer_wait(slice.zone)) waits_ns += slice.duration_ns();
    }
    EXPECT_LE(bubbles_ns, waits_ns);
    if (r == 0) {
      EXPECT_EQ(bubbles_ns, waits_ns);  // the coordinator waits in its steps only
    }
  }
}

TEST(AscendProfile, PreparingEndsWithTheFirstWorkOfTheStep) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  const auto coordinator = folders.csv(0, "step_trace_time.csv");
  EXPECT_EQ(coordinator[0].at("Preparing"), "2.000");  // the scheduler's
  Capture idle = make_made_capture({.world_size = 3});
  idle.ranks[2].threads[0].records.clear();
  const AscendFolders of_idle{ReportInput(idle)};
  for (const test::CsvRow& row : of_idle.csv(2, "step_trace_time.csv")) {
    EXPECT_EQ(row.at("Preparing"), row.at("Stage"));
    EXPECT_EQ(row.at("Free"), row.at("Stage"));
  }
}

TEST(AscendProfile, OneRankAloneHasEmptyCommunication) {
  const ReportInput input(make_made_capture({.world_size = 1}));
  const AscendFolders folders(input);
  ASSERT_EQ(folders.size(), 1U);
  const json steps = folders.json(0, "communication.json");
  for (const auto& [name, step] : steps.items()) EXPECT_TRUE(step.at("collective").empty()) << name;
  EXPECT_EQ(folders.csv(0, "step_trace_time.csv").at(0).at("Communication"), "0.000");
}

TEST(AscendProfile, CaptureWithoutStepsIsStillReadable) {
  Capture capture = make_made_capture({.world_size = 2});
  for (RankCapture& rank : capture.ranks) rank.threads[0].records.clear();
  const AscendFolders folders{ReportInput(capture)};
  EXPECT_TRUE(folders.csv(0, "step_trace_time.csv").empty());
  EXPECT_TRUE(folders.json(0, "communication.json").empty());
  EXPECT_TRUE(folders.csv(1, "kernel_details.csv").empty());
}

TEST(AscendProfile, SaysWhyTheFolderCannotBeMade) {
  const ReportInput input(make_made_capture({.world_size = 2}));
  test::expect_error([&] { write_ascend_profiles(input, "/proc/ferry"); }, ErrorCode::kUnavailable,
                     {"/proc/ferry", "cannot be made"});
}

}  // namespace
}  // namespace ferry
