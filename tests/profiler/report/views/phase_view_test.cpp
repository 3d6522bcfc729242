#include <gtest/gtest.h>

#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::ns;
using test::number;
using test::row_with;

/// A prefill step [100, 400), a decode step [600, 700); a request waits [450, 600).
test::SmallCapture two_steps() {
  test::SmallCapture small(1, 1000);
  small.step(7, Phase::kPrefill, 100, 400, 12, 1).span(0, Zone::kQProj, 100, 220, 12, 0, {7, 1});
  small.span(0, Zone::kDispatchSend, 200, 300, 64, 0, {7, 1});
  small.step(8, Phase::kDecode, 600, 700, 2, 2).span(0, Zone::kQProj, 610, 690, 2, 0, {8, 1});
  small.span(0, Zone::kRequestQueue, 450, 600, 1, 5);
  return small;
}

TEST(PhaseViewTest, DividesTheCaptureByHand) {
  const ReportInput input(two_steps().capture);
  const Table table = make_phase_view(input);
  const std::size_t prefill = row_with(table, {{"phase", "prefill"}}), decode = row_with(table, {{"phase", "decode"}});
  const std::size_t starved = row_with(table, {{"phase", "starved"}}), idle = row_with(table, {{"phase", "idle"}});
  EXPECT_EQ(number(table, prefill, "steps"), 1);
  EXPECT_EQ(number(table, prefill, "tokens"), 12);
  EXPECT_EQ(ns(table, prefill, "wall_us"), 300);
  EXPECT_EQ(ns(table, prefill, "computing_us"), 120);
  EXPECT_EQ(ns(table, prefill, "overlapped_us"), 20);
  EXPECT_EQ(ns(table, prefill, "exposed_us"), 80);
  EXPECT_EQ(ns(table, prefill, "free_us"), 100);
  EXPECT_NEAR(number(table, prefill, "tokens_per_s"), 12 / 300e-9, 1);
  EXPECT_EQ(number(table, decode, "sequences_per_step"), 2);
  EXPECT_EQ(ns(table, decode, "wall_us"), 100);
  EXPECT_EQ(ns(table, starved, "wall_us"), 150);  // [450, 600)
  EXPECT_EQ(ns(table, idle, "wall_us"), 450);     // [0, 100), [400, 450), [700, 1000)
  EXPECT_EQ(number(table, row_with(table, {{"phase", "mixed"}}), "steps"), 0);
}

TEST(PhaseViewTest, BetweenKeptStepsOfAnArchiveIsNoTime) {
  test::SmallCapture small = two_steps();
  small.capture.info.selection = {{"sample", 2}};
  const Table table = make_phase_view(ReportInput(small.capture));
  EXPECT_EQ(table.rows.size(), 3U) << "prefill, decode, mixed: neither starved nor idle";
  EXPECT_EQ(number(table, row_with(table, {{"phase", "prefill"}}), "wall_share"), 0.75);
  EXPECT_EQ(number(table, row_with(table, {{"phase", "decode"}}), "wall_share"), 0.25);
}

TEST(RunViewTest, BetweenKeptStepsOfAnArchiveIsNoTime) {
  test::SmallCapture small(1, 1'000'000'000);
  small.step(7, Phase::kDecode, 0, 50'000'000, 4, 4).step(8, Phase::kDecode, 900'000'000, 950'000'000, 4, 4);
  EXPECT_EQ(number(make_run_view(ReportInput(small.capture)), 0, "wall_s"), 1);
  small.capture.info.selection = {{"sample", 2}};
  const Table table = make_run_view(ReportInput(small.capture));
  EXPECT_EQ(number(table, 0, "wall_s"), 0.1);
  EXPECT_EQ(number(table, 0, "tokens_per_s"), 80);
}

TEST(PhaseViewTest, ARequestThatIsNeverScheduledStarvesToTheEnd) {
  test::SmallCapture small(1, 1000);
  small.step(0, Phase::kDecode, 100, 200, 1, 1);
  small.span(0, Zone::kRequestTokenize, 250, 300, 9, 5);  // queued at 300
  const ReportInput input(small.capture);
  const Table table = make_phase_view(input);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "starved"}}), "wall_us"), 700);
}

/// A benchmark: it measures roofs [0, 1000), warms up with a step and times two, and again with four sequences.
test::SmallCapture benchmark() {
  test::SmallCapture small(1, 3000);
  const auto section = [&](SectionRole role, Phase phase, uint32_t size, uint64_t begin, uint64_t end) {
    small.span(0, Zone::kSection, begin, end, size, pack_section(role, phase));
  };
  section(SectionRole::kAside, Phase::kDecode, 0, 0, 1000);
  section(SectionRole::kWarmUp, Phase::kDecode, 1, 1000, 1200);
  section(SectionRole::kMeasured, Phase::kDecode, 1, 1200, 1500);
  section(SectionRole::kMeasured, Phase::kDecode, 4, 2000, 2400);
  section(SectionRole::kAside, Phase::kDecode, 0, 2500, 3000);
  small.step(0, Phase::kDecode, 1000, 1190, 1, 1);
  small.step(1, Phase::kDecode, 1200, 1300, 1, 1);
  small.step(2, Phase::kDecode, 1310, 1430, 1, 1);
  small.step(3, Phase::kDecode, 2000, 2390, 4, 4);
  return small;
}

TEST(PhaseViewTest, WarmUpAndSizesAreRowsOfTheirOwnAndMeasuringIsNoGap) {
  const ReportInput input(benchmark().capture);
  const Table table = make_phase_view(input);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "decode ×1 warm-up"}}), "wall_us"), 190);
  EXPECT_EQ(number(table, row_with(table, {{"phase", "decode ×1"}}), "steps"), 2);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "decode ×1"}}), "wall_us"), 220);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "decode ×4"}}), "wall_us"), 390);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "aside"}}), "wall_us"), 1500);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "idle"}}), "wall_us"), 3000 - 1500 - 190 - 220 - 390);
  EXPECT_EQ(table.rows.size(), 6U);  // and "starved"

  const Table layers = make_layer_view(input);
  EXPECT_EQ(ns(layers, row_with(layers, {{"phase", "decode ×1"}}), "total_us"), 110);
  const Table gaps = make_free_view(input);
  for (std::size_t r = 0; r < gaps.rows.size(); ++r) EXPECT_LT(ns(gaps, r, "length_us"), 1000);
}

TEST(RunViewTest, WhatTheProgramDidAsideSlowsNoTokens) {
  const Table table = make_run_view(ReportInput(benchmark().capture));
  EXPECT_NEAR(number(table, 0, "wall_s"), 3000e-9, 1e-12);
  EXPECT_NEAR(number(table, 0, "tokens_per_s"), 7 / 1500e-9, 1);
}

TEST(PhaseViewTest, TheTowerBetweenStepsIsNeitherStarvedNorIdle) {
  test::SmallCapture small(1, 5000);
  small.span(0, Zone::kEncodeMedia, 500, 1500, 64);
  small.step(0, Phase::kDecode, 2000, 3000, 1, 1);
  small.span(0, Zone::kEncodeMedia, 2500, 2900, 64);  // beside the rows of a step
  const ReportInput input(small.capture);
  const Table table = make_phase_view(input);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "pictures"}}), "wall_us"), 1000);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "decode"}}), "wall_us"), 1000);
  EXPECT_EQ(ns(table, row_with(table, {{"phase", "idle"}}), "wall_us"), 3000);
  const Table types = make_layer_type_view(input);
  EXPECT_EQ(ns(types, row_with(types, {{"layer_type", "vision"}}), "us_per_step"), 400);
}

TEST(PhaseViewTest, WrongDraftsAreNoTokens) {
  test::SmallCapture small(1, 5000);
  small.step(0, Phase::kDecode, 1000, 2000, 4, 1);
  small.span(0, Zone::kRequestVerify, 1000, 1600, 5, pack_verify(3, 1), {0, kNoLayer});
  const Table table = make_phase_view(ReportInput(small.capture));
  const std::size_t decode = row_with(table, {{"phase", "decode"}});
  EXPECT_EQ(number(table, decode, "tokens"), 4);
  EXPECT_NEAR(number(table, decode, "tokens_per_s"), 2e6, 1);
}

TEST(PhaseViewTest, RowsAddUpToTheCapture) {
  for (const MadeRun& run : {MadeRun{}, MadeRun{.world_size = 1}, MadeRun{.world_size = 5, .num_decode_steps = 11}}) {
    const ReportInput input(make_made_capture(run));
    const Table table = make_phase_view(input);
    int64_t wall_ns = 0;
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      wall_ns += ns(table, r, "wall_us");
      EXPECT_EQ(ns(table, r, "computing_us") + ns(table, r, "exposed_us") + ns(table, r, "free_us"), ns(table, r, "wall_us"));
    }
    EXPECT_EQ(wall_ns, input.timeline.end_ns - input.timeline.begin_ns);
  }
}

}  // namespace
}  // namespace ferry
