#include "profiler/report/page_data/step_choice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

/// Decode steps 0, 1, … of these lengths, one behind another.
Capture make_steps(const std::vector<uint64_t>& lengths_ns) {
  test::SmallCapture small(1, 1'000'000);
  uint64_t at = 0;
  for (std::size_t s = 0; s < lengths_ns.size(); ++s) {
    small.step(static_cast<uint32_t>(s), Phase::kDecode, at, at + lengths_ns[s], 1, 1);
    at += lengths_ns[s] + 1;
  }
  return small.capture;
}

TEST(StepChoice, TheSlowestTheMedianAndTheFirstComeBeforeOthers) {
  const ReportInput input(make_steps({10, 50, 20, 30, 40, 90, 60, 70, 80}));
  const std::vector<ChosenStep> steps = rank_steps(input, {}, {});
  ASSERT_EQ(steps.size(), 9U);
  EXPECT_EQ(steps[0].step, 5U);
  EXPECT_STREQ(steps[0].why, "slowest");
  EXPECT_EQ(steps[1].step, 1U);
  EXPECT_STREQ(steps[1].why, "median");
  EXPECT_EQ(steps[2].step, 0U);
  EXPECT_EQ(steps[3].step, 2U);  // step 1 was taken as the median
  EXPECT_STREQ(steps[3].why, "first");
  EXPECT_STREQ(steps[4].why, "one of many");
  std::vector<std::size_t> all;
  for (const ChosenStep& step : steps) all.push_back(step.step);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end()) << "each once";
}

TEST(StepChoice, OpensOnTheMedianOfWhatTookLongest) {
  EXPECT_EQ(find_opening_step(ReportInput(make_steps({10, 50, 20, 30, 40})).timeline), 3);
  EXPECT_EQ(find_opening_step(Timeline{}), -1);
  // Warm-ups and what a program did aside take longer, and are not what it did.
  Timeline timeline;
  timeline.sections = {{.role = SectionRole::kWarmUp, .phase = Phase::kDecode, .size = 1, .stretches = {}},
                       {.role = SectionRole::kAside, .phase = Phase::kDecode, .size = 1, .stretches = {}},
                       {.role = SectionRole::kMeasured, .phase = Phase::kDecode, .size = 1, .stretches = {}}};
  for (const int32_t section : {0, 1, 2}) {
    const int64_t length = section == 2 ? 10 : 1000;
    timeline.steps.push_back({.step = static_cast<uint32_t>(section), .begin_ns = 0, .end_ns = length, .section = section});
  }
  EXPECT_EQ(find_opening_step(timeline), 2);
  timeline.steps.pop_back();
  EXPECT_EQ(find_opening_step(timeline), 0) << "where there is nothing else";
}

TEST(StepChoice, WhatIsAskedForComesFirst) {
  const ReportInput input(make_steps({10, 50, 20, 30, 40}));
  const std::vector<ChosenStep> steps = rank_steps(input, {2, -1}, {.first = 3, .last = 4});
  EXPECT_EQ(steps[0].step, 3U);
  EXPECT_EQ(steps[1].step, 4U);
  EXPECT_STREQ(steps[1].why, "asked for");
  EXPECT_EQ(steps[2].step, 2U);
  EXPECT_STREQ(steps[2].why, "named by a finding");
}

TEST(StepChoice, TheRestLiesAllOverTheCapture) {
  const ReportInput input(make_steps(std::vector<uint64_t>(100, 10)));
  const std::vector<ChosenStep> steps = rank_steps(input, {}, {});
  std::vector<std::size_t> quarters(4, 0);
  for (std::size_t i = 0; i < 24; ++i) ++quarters[steps[i].step / 25];
  for (const std::size_t count : quarters) EXPECT_GE(count, 4U);
}

TEST(StepChoice, AFindingAboutAWorkerNamesTheStepInWhichItKeptOthersLongest) {
  test::SmallCapture small(3, 100'000);
  for (uint32_t s = 0; s < 3; ++s) {
    const uint64_t at = 10'000 * s;
    small.step(s, Phase::kDecode, at, at + 9000, 1, 1);
    small.exchange(1, {s, 0}, at + 100, at + 200, at + 1000, at + 1100, 4);
    // Rank 2 is the last in every step, in step 1 by most.
    const uint64_t late = s == 1 ? 5000 : 500;
    small.exchange(2, {s, 0}, at + 100, at + 200, at + 1000 + late, at + 1100 + late, 4);
  }
  const ReportInput input(small.capture);
  const std::vector<Finding> findings = {{.kind = "slow_rank", .text = "", .table = "straggler", .rank = 2},
                                         {.kind = "none", .text = "", .table = "run"},
                                         {.kind = "exposed_communication", .text = "", .table = "phase"}};
  EXPECT_EQ(find_telling_steps(input, findings), (std::vector<int32_t>{1, -1, 1}));
}

}  // namespace
}  // namespace ferry
