#include <gmock/gmock.h>

#include <map>
#include <string>

#include "profiler/export/ascend_rank.h"
#include "profiler/export/ascend_shapes.h"
#include "profiler/report/breakdown.h"
#include "tests/profiler/ascend_folder.h"
#include "tests/support/made_capture.h"

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
          "Output Data Types,Output Formats,Context ID,aicore_time(us),aiv_vec_time(us),"));
  EXPECT_THAT(test::read_text(folders.output(0, "op_statistic.csv")),
              testing::StartsWith(
                  "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"));
  EXPECT_THAT(test::read_text(folders.output(0, "api_statistic.csv")),
              testing::StartsWith("Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\n"));
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
  capture.info.model.hidden_dim = 64;
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

ModelFacts shape_facts() {
  return {.name = "m",
          .dtype = "bf16",
          .mixer_bytes = 1.02,
          .expert_bytes = 0.56,
          .hidden_dim = 64,
          .vocab_size = 500,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .num_k_heads = 2,
          .num_v_heads = 6,
          .k_dim = 8,
          .v_dim = 12,
          .conv_channels = 104,
          .conv_kernel = 4,
          .num_experts = 32,
          .top_k = 8,
          .intermediate_dim = 40,
          .shared_intermediate_dim = 48};
}

std::string text_of(const std::vector<TensorShape>& tensors) {
  std::string text;
  for (const TensorShape& tensor : tensors) {
    text += (text.empty() ? "" : "; ") + std::string(tensor.type);
    for (const int64_t dim : tensor.dims) text += " " + std::to_string(dim);
  }
  return text;
}

TEST(AscendKernelDetails, ShapesHoldWeightsCachesAndStates) {
  const ModelFacts model = shape_facts();
  const auto inputs = [&](Zone zone, uint32_t a, uint32_t b, int64_t sequences = 1) {
    return text_of(kernel_shapes(model, zone, a, b, sequences).inputs);
  };
  const auto outputs = [&](Zone zone, uint32_t a, uint32_t b) { return text_of(kernel_shapes(model, zone, a, b, 1).outputs); };
  EXPECT_EQ(inputs(Zone::kQProj, 5, 0), "DT_BF16 5 64; INT8 64 128");  // with its gate
  EXPECT_EQ(inputs(Zone::kRouter, 5, 0), "DT_BF16 5 64; DT_BF16 64 32");
  EXPECT_EQ(inputs(Zone::kGroupedGateUp, 9, 3), "DT_BF16 9 64; INT4 3 64 80; INT32 3");
  EXPECT_EQ(outputs(Zone::kGroupedGateUp, 9, 3), "DT_BF16 9 40");
  EXPECT_EQ(inputs(Zone::kSharedGateUp, 9, 0), "DT_BF16 9 64; DT_BF16 64 96");
  EXPECT_EQ(outputs(Zone::kSharedGateUp, 9, 0), "DT_BF16 9 48");
  EXPECT_EQ(inputs(Zone::kAttention, 4, 2, 4), "DT_BF16 4 4 16; DT_BF16 2000 2 16; DT_BF16 2000 2 16");
  EXPECT_EQ(inputs(Zone::kAttention, 100, 5, 1), "DT_BF16 100 4 16; DT_BF16 50 2 16; DT_BF16 50 2 16");
  EXPECT_EQ(inputs(Zone::kRecurrentDeltaRule, 3, 3),
            "DT_BF16 3 2 8; DT_BF16 3 2 8; DT_BF16 3 6 12; FLOAT 3 6; FLOAT 3 6; FLOAT 3 6 12 8");
  EXPECT_EQ(inputs(Zone::kCausalConv1d, 3, 2), "DT_BF16 3 104; DT_BF16 104 4; DT_BF16 2 104 3");
  EXPECT_EQ(inputs(Zone::kGatedNorm, 18, 0), "DT_BF16 18 12; DT_BF16 18 12; DT_BF16 12");
  EXPECT_EQ(text_of(kernel_shapes({}, Zone::kRouter, 5, 0, 1).inputs), "");
}

/// What runs on a unit has shapes; messages and what a record does not tell have none.
TEST(AscendKernelDetails, EveryOperatorOfTheModelHasShapes) {
  for (int z = 0; z < kNumZones; ++z) {
    const Zone zone = static_cast<Zone>(z);
    if (zone_info(zone).kind != ZoneKind::kCompute || zone == Zone::kRopeTable) continue;
    const KernelShapes shapes = kernel_shapes(shape_facts(), zone, 4, 2, 2);
    EXPECT_FALSE(shapes.inputs.empty()) << zone_info(zone).name;
    EXPECT_FALSE(shapes.outputs.empty()) << zone_info(zone).name;
  }
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
