#include <gmock/gmock.h>

#include <map>
#include <string>

#include "profiler/export/ascend_rank.h"
#include "profiler/report/timeline/breakdown.h"
#include "tests/profiler/export/ascend_folder.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::AscendFolders;
using test::CsvRow;
using test::us_to_ns;

bool is_collective(const CsvRow& row) { return row.at("Accelerator Core") == "COMMUNICATION"; }

TEST(AscendKernelDetails, HeaderIsTheReaders) {
  const AscendFolders folders{ReportInput(make_made_capture({.world_size = 2}))};
  EXPECT_THAT(
      test::read_text(folders.output(0, "kernel_details.csv")),
      testing::StartsWith(
          "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
          "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
          "Output Data Types,Output Formats,Context ID,aicore_time(us),aiv_vec_time(us),Layer,Layer Type,Phase,Part,FLOPs\n"));
  EXPECT_THAT(test::read_text(folders.output(0, "op_statistic.csv")),
              testing::StartsWith(
                  "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"));
  EXPECT_THAT(test::read_text(folders.output(0, "api_statistic.csv")),
              testing::StartsWith("Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\n"));
}

TEST(AscendKernelDetails, StrangersTextsStayInTheirFields) {
  Capture capture = make_made_capture({.world_size = 1});
  capture.info.model.layer_types.assign(4, "=a,\"b\"\n\x1b");
  const AscendFolders folders{ReportInput(capture)};
  const std::string text = test::read_text(folders.output(0, "kernel_details.csv"));
  EXPECT_THAT(text, testing::HasSubstr(",\"'=a,\"\"b\"\"\n\\x1b\","));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(AscendKernelDetails, DurationsAddUpToWhatTheRankComputed) {
  const ReportInput input(make_made_capture({.world_size = 3}));  // one thread a rank
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 3; ++r) {
    int64_t kernels_ns = 0, statistic_ns = 0, last_ns = 0;
    double ratio = 0;
    for (const CsvRow& row : folders.csv(r, "kernel_details.csv")) {
      EXPECT_EQ(row.at("Start Time(us)").back(), '\t');
      EXPECT_GE(us_to_ns(row.at("Start Time(us)")), last_ns);
      last_ns = us_to_ns(row.at("Start Time(us)"));
      if (is_collective(row)) continue;
      kernels_ns += us_to_ns(row.at("Duration(us)"));
      EXPECT_EQ(us_to_ns(row.at("aicore_time(us)")) + us_to_ns(row.at("aiv_vec_time(us)")), us_to_ns(row.at("Duration(us)")));
    }
    for (const CsvRow& row : folders.csv(r, "op_statistic.csv")) {
      statistic_ns += us_to_ns(row.at("Total Time(us)"));
      ratio += std::stod(row.at("Ratio(%)"));
      EXPECT_LE(us_to_ns(row.at("Min Time(us)")), us_to_ns(row.at("Avg Time(us)")));
      EXPECT_LE(us_to_ns(row.at("Avg Time(us)")), us_to_ns(row.at("Max Time(us)")));
    }
    EXPECT_EQ(kernels_ns, total(input.activity[static_cast<std::size_t>(r)].computing));
    EXPECT_EQ(kernels_ns, statistic_ns);
    EXPECT_NEAR(ratio, 100, 0.05);
  }
}

/// One thread with an operator of 100 us that holds another of 20 us and waits of 30 us, one of them inside the inner one's
/// wait.
Capture nested_capture() {
  Capture capture;
  RankCapture rank{.host = "h", .pid = 5, .num_threads = 3, .begin = 0, .end = 1'000'000};
  const auto record = [&](Zone zone, uint64_t begin_us, uint64_t end_us) {
    return SpanRecord{.begin = begin_us * 1000, .end = end_us * 1000, .step = 1, .zone = zone, .layer = 0, .a = 6, .b = 0};
  };
  rank.threads.push_back(
      {.name = "t",
       .tid = 9,
       .records = {record(Zone::kCombine, 100, 200), record(Zone::kWaitCombine, 110, 140), record(Zone::kWaitLock, 115, 125),
                   record(Zone::kPermute, 150, 170), record(Zone::kAdd, 230, 235)}});
  capture.ranks.push_back(rank);
  capture.info.model.operators = {
      {.zone = Zone::kCombine, .inputs = {{"DT_BF16", {TensorDim::Kind::kRows, 64}}}, .outputs = {}}};
  return capture;
}

TEST(AscendKernelDetails, WaitsAndInnerOperatorsAreNotAnOperatorsTime) {
  const ReportInput input(nested_capture());
  const AscendFolders folders(input);
  const auto rows = folders.csv(0, "kernel_details.csv");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].at("Name"), "MoeTokenUnpermute");
  EXPECT_EQ(rows[0].at("Duration(us)"), "50.000");
  EXPECT_EQ(rows[0].at("Start Time(us)"), "1100.000\t");
  EXPECT_EQ(rows[0].at("Input Shapes"), "\"6,64\"");
  EXPECT_EQ(rows[1].at("Duration(us)"), "20.000");
  EXPECT_EQ(rows[2].at("Wait Time(us)"), "30.000");
  EXPECT_EQ(total(input.activity[0].computing), (50 + 20 + 5) * 1000);
}

TEST(AscendKernelDetails, ADevicesOperatorsAreTheKernels) {
  const ReportInput input(test::device_capture().capture);
  const AscendFolders folders(input);
  std::vector<std::string> kernels;
  for (const CsvRow& row : folders.csv(0, "kernel_details.csv")) {
    if (row.at("Stream ID") == "1") kernels.push_back(row.at("Name") + " " + row.at("Duration(us)"));
    if (row.at("Stream ID") == "0") {
      EXPECT_EQ(row.at("Name"), "ArgMax.sample") << "what the thread hands over is no kernel of its";
    }
  }
  EXPECT_EQ(kernels, (std::vector<std::string>{"Add 0.500", "MatMul.o_proj 1.500", "Add 0.500", "Add 1.000", "Memcpy 0.200"}));
}

TEST(AscendOperatorDetails, DeviceTimesAreThoseOfTheKernels) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 3; ++r) {
    std::map<std::string, std::pair<int64_t, std::string>> expected, found;  // ns, operations, by name
    for (const CsvRow& row : folders.csv(r, "kernel_details.csv")) {
      if (is_collective(row)) continue;
      expected[row.at("Name")].first += us_to_ns(row.at("Duration(us)"));
      expected[row.at("Name")].second += row.at("FLOPs") + " ";
    }
    for (const CsvRow& row : folders.csv(r, "operator_details.csv")) {
      found[row.at("Name")].first += us_to_ns(row.at("Device Self Duration(us)"));
      found[row.at("Name")].second += row.at("FLOPs") + " ";
      EXPECT_GE(us_to_ns(row.at("Device Total Duration(us)")), us_to_ns(row.at("Device Self Duration(us)")));
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(AscendOperatorDetails, TotalsHoldWhatIsInside) {
  const AscendFolders folders{ReportInput(nested_capture())};
  const auto rows = folders.csv(0, "operator_details.csv");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].at("Name"), "MoeTokenUnpermute");
  EXPECT_EQ(rows[0].at("Host Self Duration(us)"), "50.000");
  EXPECT_EQ(rows[0].at("Host Total Duration(us)"), "100.000");
  EXPECT_EQ(rows[0].at("Device Self Duration(us)"), "50.000");
  EXPECT_EQ(rows[0].at("Device Total Duration(us)"), "70.000");
  EXPECT_EQ(rows[0].at("Device Total Duration With AICore(us)"), "0.000");
  EXPECT_EQ(rows[0].at("Input Shapes"), "6,64");
  EXPECT_EQ(rows[0].at("FLOPs"), "N/A");
  EXPECT_EQ(rows[2].at("Device Total Duration(us)"), "5.000") << "it stands beside the first";
}

TEST(AscendOperatorDetails, ADevicesTimeIsThatOfTheCall) {
  const AscendFolders folders{ReportInput(test::device_capture().capture)};
  std::vector<std::string> calls;
  for (const CsvRow& row : folders.csv(0, "operator_details.csv"))
    calls.push_back(row.at("Name") + " " + row.at("Host Total Duration(us)") + " " + row.at("Device Self Duration(us)") + " " +
                    row.at("Device Self Duration With AICore(us)") + " " + row.at("FLOPs"));
  EXPECT_THAT(calls, testing::ElementsAre("Add 0.100 0.500 0.000 N/A", "MatMul.o_proj 0.200 1.500 1.500 160",
                                          "Add 0.100 1.500 0.000 N/A", "ArgMax.sample 3.500 0.600 0.000 N/A",
                                          "Memcpy 0.000 0.200 0.000 N/A"));
}

TEST(AscendKernelDetails, TypesAndUnitsFollowFromTheOperator) {
  const AscendFolders folders{ReportInput(make_made_capture({.world_size = 2}))};
  std::map<std::string, CsvRow> by_name;
  for (const CsvRow& row : folders.csv(0, "kernel_details.csv")) by_name.emplace(row.at("Name"), row);
  EXPECT_EQ(by_name.at("MatMul.in_proj_qkv").at("Type"), "MatMul");
  EXPECT_EQ(by_name.at("MatMul.in_proj_qkv").at("Accelerator Core"), "AI_CORE");
  EXPECT_EQ(by_name.at("MatMul.in_proj_qkv").at("Layer Type"), "linear_attention");
  EXPECT_EQ(by_name.at("FusedInferAttentionScore").at("Accelerator Core"), "MIX_AIC");
  EXPECT_EQ(by_name.at("MatMulSwiglu.shared_gate_up").at("Accelerator Core"), "MIX_AIC");
  EXPECT_EQ(by_name.at("MatMulSwiglu.shared_gate_up").at("aiv_vec_time(us)"), "0.000");
  EXPECT_STREQ(accelerator_core(Zone::kGroupedGateUp), "MIX_AIC");
  EXPECT_STREQ(accelerator_core(Zone::kGroupedDown), "AI_CORE");
  EXPECT_EQ(by_name.at("RmsNorm").at("Accelerator Core"), "AI_VECTOR_CORE");
  EXPECT_EQ(by_name.at("RmsNorm").at("Phase"), "prefill");
  EXPECT_EQ(by_name.at("hcom_alltoallv__combine_3").at("Type"), "hcom_alltoallv_");
}

TEST(AscendKernelDetails, HostTimesAreSummedByName) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  std::map<std::string, CsvRow> by_name;
  for (const CsvRow& row : folders.csv(0, "api_statistic.csv")) by_name.emplace(row.at("API Name"), row);
  int64_t steps_ns = 0;
  for (const StepInfo& step : input.timeline.steps) steps_ns += step.end_ns - step.begin_ns;
  EXPECT_EQ(us_to_ns(by_name.at("step").at("Time(us)")), steps_ns);
  EXPECT_EQ(by_name.at("step").at("Count"), std::to_string(input.timeline.steps.size()));
  EXPECT_EQ(by_name.at("Schedule").at("Level"), "Node");
  EXPECT_EQ(by_name.at("Schedule").at("Variance"), "0.000");
  EXPECT_EQ(by_name.at("wait.combine").at("Level"), "Runtime");
}

}  // namespace
}  // namespace ferry
