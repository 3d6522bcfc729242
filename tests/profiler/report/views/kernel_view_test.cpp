#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/kernel_groups.h"
#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::cell;
using test::is_empty;
using test::ns;
using test::number;
using test::row_with;
using test::text;
using testing::HasSubstr;

std::string names_of(const Timeline& timeline) {
  std::string names;
  for (const KernelGroup& group : find_kernel_groups(timeline))
    names += group.name + " " + std::to_string(timeline.steps[static_cast<std::size_t>(group.typical)].step) + " of " +
             std::to_string(group.steps.size()) + ";";
  return names;
}

TEST(KernelGroupsTest, PrefillDecodeAndVerifyingAreFoundAndTheMedianStandsForThem) {
  test::SmallCapture small(1, 100'000);
  const auto step = [&](uint32_t s, Phase phase, uint64_t ns, uint32_t drafts) {
    small.step(s, phase, 5000 * s, 5000 * s + ns, 4, 1);
    if (drafts > 0) small.span(0, Zone::kRequestVerify, 5000 * s, 5000 * s + ns, 9, pack_verify(drafts, 1), {s, kNoLayer});
  };
  step(0, Phase::kPrefill, 4000, 0);
  step(1, Phase::kMixed, 4000, 0);
  step(2, Phase::kDecode, 900, 0);
  step(3, Phase::kDecode, 100, 0);
  step(4, Phase::kDecode, 500, 0);
  step(5, Phase::kDecode, 700, 2);
  step(6, Phase::kDecode, 800, 2);
  const ReportInput input(small.capture);
  EXPECT_EQ(names_of(input.timeline), "prefill 0 of 1;decode 4 of 3;draft-verify 5 of 2;");
  EXPECT_THAT(make_kernel_view(input).note, HasSubstr("decode: step 4 (0.001 ms), the median of 3;"));
}

TEST(KernelGroupsTest, SizesOfABenchmarkAreApartAndItsWarmUpsLeftOut) {
  test::SmallCapture small(1, 100'000);
  small.step(0, Phase::kDecode, 0, 1000, 1, 1)
      .step(1, Phase::kDecode, 2000, 3000, 1, 1)
      .step(2, Phase::kDecode, 4000, 5000, 4, 4);
  small.span(0, Zone::kRequestVerify, 4000, 5000, 9, pack_verify(2, 1), {2, kNoLayer});
  small.span(0, Zone::kSection, 0, 1500, 1, pack_section(SectionRole::kWarmUp, Phase::kDecode));
  small.span(0, Zone::kSection, 2000, 3500, 1, pack_section(SectionRole::kMeasured, Phase::kDecode));
  small.span(0, Zone::kSection, 4000, 5500, 4, pack_section(SectionRole::kMeasured, Phase::kDecode));
  EXPECT_EQ(names_of(ReportInput(small.capture).timeline), "decode ×1 1 of 1;draft-verify ×4 2 of 1;");
}

/// A step 1000…5000 of one layer whose experts are on rank 1; it guesses further tokens at its end.
test::SmallCapture one_step() {
  test::SmallCapture small(2, 10'000);
  small.capture.info.model.layer_types = {"full_attention", "mtp"};
  small.capture.info.model.operators = {
      {.zone = Zone::kQProj, .flop = {.per_row = 1600}, .bytes = {.fixed = 300}, .inputs = {}, .outputs = {}},
      {.zone = Zone::kGroupedGateUp, .flop = {.per_row = 500}, .inputs = {}, .outputs = {}}};
  small.step(7, Phase::kDecode, 1000, 5000, 2, 1);
  small.span(0, Zone::kRequestVerify, 1000, 5000, 9, pack_verify(1, 1), {7, kNoLayer});
  small.span(0, Zone::kEmbedding, 1100, 1200, 2, 0, {7, kNoLayer});
  small.span(0, Zone::kQProj, 1250, 1650, 2, 0, {7, 0});
  small.exchange(1, {7, 0}, 1700, 1900, 2400, 2600, 4);
  small.span(1, Zone::kGroupedDown, 2450, 2500, 4, 1, {7, 0});
  small.span(0, Zone::kWaitCombine, 1700, 2600, 0, 1, {7, 0});
  small.span(0, Zone::kLmHead, 2600, 3600, 2, 0, {7, kNoLayer});
  small.span(0, Zone::kDraft, 3600, 4800, 2, 1, {7, kNoLayer}).span(0, Zone::kQProj, 3700, 4500, 1, 0, {7, 1});
  small.span(1, Zone::kGroupedGateUp, 6000, 7000, 4, 1, {8, 0});  // of another step
  return small;
}

TEST(KernelViewTest, TellsAStepInTheOrderOfTime) {
  const ReportInput input(one_step().capture);
  const Table table = make_kernel_view(input);
  std::string kernels;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    EXPECT_EQ(text(table, r, "phase"), "draft-verify");
    EXPECT_EQ(number(table, r, "step"), 7);
    EXPECT_EQ(number(table, r, "order"), static_cast<double>(r) + 1);
    kernels += std::to_string(static_cast<int>(number(table, r, "rank"))) + " " + text(table, r, "kernel") + " " +
               text(table, r, "kind") + " " + std::to_string(ns(table, r, "self_us")) + "\n";
  }
  EXPECT_EQ(kernels,
            "0 Embedding compute 100\n0 MatMul.q_proj compute 400\n0 wait.combine wait 900\n"
            "1 GroupedMatmulSwiglu compute 500\n1 GroupedMatmul.down compute 50\n0 MatMul.lm_head compute 1000\n"
            "0 draft host 400\n0 MatMul.q_proj compute 800\n");
  EXPECT_EQ(ns(table, 1, "start_us"), 250);
  EXPECT_EQ(ns(table, 1, "gap_us"), 50);
  EXPECT_EQ(ns(table, 0, "gap_us"), 100) << "since the step's begin";
  EXPECT_EQ(ns(table, 7, "gap_us"), 0) << "it is in the draft";
  EXPECT_TRUE(is_empty(table, 3, "gap_us"));
  EXPECT_EQ(ns(table, 4, "gap_us"), 50) << "of the worker";
  EXPECT_TRUE(is_empty(table, 0, "layer"));
  EXPECT_EQ(text(table, 0, "layer_name"), "model.embed_tokens");
  EXPECT_EQ(text(table, 1, "layer_name"), "model.layers.0.self_attn");
  EXPECT_EQ(text(table, 3, "layer_name"), "model.layers.0.mlp.experts");
  EXPECT_EQ(text(table, 7, "layer_name"), "mtp.layers.0.self_attn");
  EXPECT_EQ(text(table, 1, "layer_type"), "full_attention");
  EXPECT_EQ(text(table, 7, "layer_type"), "draft");
  EXPECT_EQ(text(table, 1, "part"), "attention");
  EXPECT_EQ(number(table, 1, "rows"), 2);
  EXPECT_TRUE(is_empty(table, 2, "rows"));
  EXPECT_EQ(number(table, 1, "gflop_per_s"), 8.0);
  EXPECT_EQ(number(table, 1, "gb_per_s"), 0.75);
  EXPECT_EQ(number(table, 3, "gflop_per_s"), 4.0);
  EXPECT_TRUE(is_empty(table, 3, "gb_per_s"));
  EXPECT_TRUE(is_empty(table, 5, "gflop_per_s"));
  EXPECT_EQ(number(table, 1, "share"), 0.1);
}

/// Own times and gaps of the coordinator, and what follows its last kernel.
void expect_whole_steps(const ReportInput& input) {
  const Table table = make_kernel_view(input);
  for (const KernelGroup& group : find_kernel_groups(input.timeline)) {
    const StepInfo& step = input.timeline.steps[static_cast<std::size_t>(group.typical)];
    int64_t sum_ns = 0, end_ns = 0;
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      if (text(table, r, "phase") != group.name || number(table, r, "rank") != 0) continue;
      sum_ns += ns(table, r, "self_us") + ns(table, r, "gap_us");
      end_ns = std::max(end_ns, ns(table, r, "start_us") + ns(table, r, "duration_us"));
    }
    EXPECT_EQ(sum_ns, end_ns) << group.name;
    EXPECT_LE(end_ns, step.end_ns - step.begin_ns) << group.name;
    EXPECT_GT(sum_ns, 0) << group.name;
  }
}

TEST(KernelViewTest, OwnTimesAndGapsAreTheStep) {
  expect_whole_steps(ReportInput(one_step().capture));
  expect_whole_steps(ReportInput(make_made_capture({.world_size = 4, .slow_rank = 2, .slow_factor = 3})));
  expect_whole_steps(ReportInput(make_made_capture({.world_size = 1})));
  expect_whole_steps(ReportInput(test::device_capture().capture));
}

TEST(KernelViewTest, ADevicesOperatorsAreByItsClock) {
  const ReportInput input(test::device_capture().capture);
  const Table table = make_kernel_view(input);
  const std::size_t o_proj = row_with(table, {{"kernel", "MatMul.o_proj"}, {"kind", "device"}});
  EXPECT_EQ(ns(table, o_proj, "self_us"), 1500);
  EXPECT_NEAR(number(table, o_proj, "gflop_per_s"), 160.0 / 1500, 1e-9);
  const std::size_t handed = row_with(table, {{"kernel", "MatMul.o_proj"}, {"kind", "host"}});
  EXPECT_EQ(ns(table, handed, "self_us"), 200);
  EXPECT_TRUE(is_empty(table, handed, "gb_per_s")) << "it only hands over";
  // An Add in two submissions has the rate of both together, on its first.
  const std::size_t first = row_with(table, {{"kernel", "Add"}, {"kind", "device"}, {"start_us", 3.0}});
  EXPECT_NEAR(number(table, first, "gb_per_s"), 100.0 / 1500, 1e-9);
  EXPECT_TRUE(is_empty(table, row_with(table, {{"kernel", "Add"}, {"kind", "device"}, {"start_us", 5.0}}), "gb_per_s"));
}

TEST(KernelViewTest, WithoutStepsThereAreNoRows) {
  EXPECT_TRUE(make_kernel_view(ReportInput(test::SmallCapture(1, 1000).capture)).rows.empty());
}

}  // namespace
}  // namespace ferry
