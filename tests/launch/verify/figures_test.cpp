#include "launch/verify/figures.h"

#include <gtest/gtest.h>

#include "profiler/report/timeline/report_input.h"
#include "tests/launch/verify/made_runs.h"

namespace ferry {
namespace {

using test::make_run_of_steps;
using test::SmallCapture;

const Figure& figure(const std::vector<Figure>& figures, const std::string& name) {
  const Figure* const found = find_figure(figures, name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? figures.at(0) : *found;
}

TEST(FiguresTest, StepsHaveRatesAndTimesByPhaseAndSize) {
  // 32 steps in 16 blocks of two: 1 ms and 3 ms of four tokens.
  std::vector<double> lengths;
  for (int i = 0; i < 32; ++i) lengths.push_back(i % 2 == 0 ? 1000 : 3000);
  const ReportInput input(make_run_of_steps({.step_us = lengths}));
  const std::vector<Figure> figures = measure_figures(input.timeline);
  for (const char* name : {"decode tokens/s", "decode ×4 tokens/s", "tokens/s"}) {
    EXPECT_EQ(figure(figures, name).samples.size(), 16U) << name;
    EXPECT_TRUE(figure(figures, name).more_is_better) << name;
    EXPECT_DOUBLE_EQ(figure(figures, name).value(), 8 / 4e-3) << name;
  }
  EXPECT_DOUBLE_EQ(figure(figures, "decode ms a step").value(), 2);
  EXPECT_FALSE(figure(figures, "decode ms a step").more_is_better);
  EXPECT_DOUBLE_EQ(figure(figures, "decode ms a step").split_share, 2) << "odd steps take three times as long";
  EXPECT_DOUBLE_EQ(figure(figures, "decode ms a step").drift_share, 0) << "its halves do not differ";
  EXPECT_EQ(find_figure(figures, "TTFT p50 ms"), nullptr);
  EXPECT_EQ(steps_of_figure(input.timeline, "decode ×4 ms a step").size(), 32U);
  EXPECT_EQ(steps_of_figure(input.timeline, "TTFT p50 ms").size(), 32U);
  EXPECT_TRUE(steps_of_figure(input.timeline, "prefill ms a step").empty());
}

TEST(FiguresTest, AMachineThatGetsSlowerShowsAsDrift) {
  std::vector<double> lengths(20, 1000);
  lengths.resize(40, 1500);
  const ReportInput input(make_run_of_steps({.step_us = lengths}));
  const std::vector<Figure> figures = measure_figures(input.timeline);
  const Figure& time = figure(figures, "decode ms a step");
  EXPECT_DOUBLE_EQ(time.drift_share, 0.5);
  EXPECT_DOUBLE_EQ(time.split_share, 0);
  // Quarters of 1, 1, 1.5 and 1.5 ms: a deviation of 0.2887 ms, of the mean of four half of that.
  EXPECT_NEAR(time.error_share, 0.28868 / 2 / 1.25, 1e-4);
}

TEST(FiguresTest, SectionsStandApartAndWarmUpIsLeftOut) {
  SmallCapture small(1, 100'000);
  small.span(0, Zone::kSection, 0, 10'000, 4, pack_section(SectionRole::kWarmUp, Phase::kDecode));
  small.span(0, Zone::kSection, 10'000, 50'000, 4, pack_section(SectionRole::kMeasured, Phase::kDecode));
  small.span(0, Zone::kSection, 50'000, 90'000, 1, pack_section(SectionRole::kMeasured, Phase::kDecode));
  for (uint32_t s = 0; s < 9; ++s) {
    const uint64_t begin = 1000 + 10'000 * s;
    const uint32_t sequences = s < 5 ? 4 : 1;
    small.step(s, Phase::kDecode, begin, begin + (s == 0 ? 9000 : 4000), sequences, sequences);
  }
  const ReportInput input(small.capture);
  const std::vector<Figure> figures = measure_figures(input.timeline);
  EXPECT_DOUBLE_EQ(figure(figures, "decode ×4 ms a step").value(), 0.004);
  EXPECT_EQ(figure(figures, "decode ×4 ms a step").samples.size(), 4U);
  EXPECT_EQ(figure(figures, "decode ×1 ms a step").samples.size(), 4U);
  EXPECT_EQ(find_figure(figures, "decode ×4 warm-up ms a step"), nullptr);
  EXPECT_EQ(steps_of_figure(input.timeline, "tokens/s").size(), 8U);
}

/// 32 us of steps of 1 us. Request 1 comes at 0 and has its first token with the step that ends at 2 us, then one with each;
/// request 2 was there before, and ends after: of it only its steps are known.
TEST(FiguresTest, AnswersHaveFirstTokensGapsAndARate) {
  SmallCapture small(1, 32'000);
  const auto request = [&](uint32_t number, Zone zone, uint64_t begin, uint64_t end, uint32_t b, uint32_t step) {
    small.span(0, zone, begin, end, number, b, {step, kNoLayer});
  };
  for (uint32_t s = 0; s < 32; ++s) {
    const uint64_t begin = 1000 * s;
    small.step(s, s < 2 ? Phase::kMixed : Phase::kDecode, begin, begin + 1000, s < 2 ? 9 : 2, 2);
    request(1, Zone::kRequestStep, begin, begin + 1000, 1, s);
    request(2, Zone::kRequestStep, begin, begin + 1000, 1, s);
  }
  request(1, Zone::kRequestTokenize, 0, 100, 16, kNoStep);
  request(1, Zone::kRequestQueue, 100, 500, 16, kNoStep);
  request(1, Zone::kRequestPrefill, 500, 2000, 16, kNoStep);
  const ReportInput input(small.capture);
  const std::vector<Figure> figures = measure_figures(input.timeline);
  EXPECT_DOUBLE_EQ(figure(figures, "TTFT p50 ms").value(), 0.002);
  EXPECT_DOUBLE_EQ(figure(figures, "time between tokens p50 ms").value(), 0.001);
  const Figure& rate = figure(figures, "generated tokens/s");
  ASSERT_EQ(rate.samples.size(), 16U);
  EXPECT_TRUE(rate.more_is_better);
  EXPECT_DOUBLE_EQ(rate.samples[0], 1 / 2e-6)
      << "of the one that was there; the step that ends at 2 us counts for what follows";
  EXPECT_DOUBLE_EQ(rate.samples[1], 4 / 2e-6) << "its first token is the other's step's, too";
  EXPECT_DOUBLE_EQ(rate.samples[8], 4 / 2e-6);
  EXPECT_FALSE(steps_group("generated tokens/s")) << "no group of that name";
  EXPECT_EQ(steps_group("decode ×4 tokens/s"), "decode ×4");
}

}  // namespace
}  // namespace ferry
