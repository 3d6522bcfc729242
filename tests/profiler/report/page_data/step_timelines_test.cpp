#include "profiler/report/page_data/step_timelines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "profiler/report/report_page.h"
#include "profiler/report/views/views.h"
#include "tests/profiler/report/page_data/unpacked_step.h"
#include "tests/support/draws.h"
#include "tests/support/made_capture.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

TEST(StepTimelines, HoldAllStepsWhereTheyFit) {
  const ReportInput input(make_made_capture({.world_size = 3, .num_layers = 2, .num_decode_steps = 6}));
  const ordered_json timelines = make_step_timelines(input, {{.text = "", .table = "phase"}}, {}, kTimelineBytes);
  ASSERT_EQ(timelines["steps"].size(), input.timeline.steps.size());
  EXPECT_EQ(timelines["num_steps"], input.timeline.steps.size());
  for (std::size_t s = 0; s < input.timeline.steps.size(); ++s) {
    const ordered_json& step = timelines["steps"][s];
    const StepInfo& info = input.timeline.steps[s];
    EXPECT_EQ(step["step"], info.step);
    EXPECT_EQ(step["begin_ns"], info.begin_ns);
    EXPECT_EQ(step["length_ns"], info.end_ns - info.begin_ns);
    EXPECT_EQ(step["why"], "");
    const test::UnpackedStep unpacked(test::inflate_bytes(test::decode_base64(step["data"])));
    EXPECT_EQ(step["slices"], unpacked.zone.size());
  }
  EXPECT_EQ(timelines["zones"].size(), static_cast<std::size_t>(kNumZones));
  EXPECT_EQ(timelines["zones"][0], ordered_json::parse(R"(["step", "step", "other", "tokens", "plan"])"));
  EXPECT_EQ(timelines["lanes"][0][1], "thread");
  EXPECT_EQ(timelines["finding_steps"].size(), 1U);
}

TEST(StepTimelines, KeepToTheirBudget) {
  const ReportInput input(make_made_capture({.world_size = 3, .num_decode_steps = 60}));
  const ordered_json timelines = make_step_timelines(input, {}, {.first = 33, .last = 33}, 20'000);
  const std::size_t num_steps = timelines["steps"].size();
  EXPECT_GT(num_steps, 3U);
  EXPECT_LT(num_steps, input.timeline.steps.size());
  EXPECT_LT(timelines["steps"].dump().size(), 20'000U);
  bool has_wanted = false;
  int64_t before = -1;
  for (const ordered_json& step : timelines["steps"]) {
    has_wanted |= step["step"] == 33 && step["why"] == "asked for";
    EXPECT_LT(before, step["begin_ns"].get<int64_t>());
    before = step["begin_ns"];
  }
  EXPECT_TRUE(has_wanted);
}

TEST(StepTimelines, APageOfManySpansStaysBelowThreeMegabytes) {
  Capture capture = make_made_capture({.world_size = 4, .num_layers = 40, .num_decode_steps = test::draws(900, 90)});
  std::size_t num_spans = 0;
  for (const RankCapture& rank : capture.ranks) {
    for (const ThreadCapture& thread : rank.threads) num_spans += thread.records.size();
  }
  EXPECT_GE(num_spans, test::draws(1'000'000U, 90'000U));
  const ReportInput input(std::move(capture));
  const std::vector<Finding> findings = find_problems(input);
  const std::string page =
      make_report_page("a run", findings, make_views(input), make_step_timelines(input, findings, {}, kTimelineBytes));
  EXPECT_LE(page.size(), 3'000'000U);
  EXPECT_GT(page.size(), 1'000'000U) << "there are steps and tables in it";
}

}  // namespace
}  // namespace ferry
