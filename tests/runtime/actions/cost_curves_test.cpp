#include "runtime/actions/cost_curves.h"

#include <gtest/gtest.h>

#include "runtime/actions/nonnegative_fit.h"

namespace ferry {
namespace {

TEST(NonnegativeFitTest, FindsCoefficientsThatAreThere) {
  std::vector<FitPoint> points;
  for (int a = 1; a < 6; ++a)
    for (int b = 0; b < 6; ++b)
      points.push_back({{1, static_cast<double>(a), static_cast<double>(b)}, 3.0 + 2.0 * a + 0.5 * b});
  const auto [fixed, of_a, of_b] = fit_nonnegative(points);
  EXPECT_NEAR(fixed, 3, 1e-6);
  EXPECT_NEAR(of_a, 2, 1e-6);
  EXPECT_NEAR(of_b, 0.5, 1e-6);
}

TEST(NonnegativeFitTest, NoneIsNegativeAndNoneIsCountedTwice) {
  std::vector<FitPoint> points;
  for (int a = 1; a < 6; ++a) points.push_back({{1, static_cast<double>(a), 2.0 * a}, 10.0 - a});
  const auto [fixed, of_a, of_b] = fit_nonnegative(points);
  EXPECT_NEAR(fixed, 7, 1e-6) << "the mean: it falls, which no coefficient may say";
  EXPECT_EQ(of_a, 0);
  EXPECT_EQ(of_b, 0);
  EXPECT_EQ(fit_nonnegative({})[0], 0);
}

TEST(CostCurvesTest, MeansRise) {
  const std::vector<SizedTime> times{{1, 2}, {1, 4}, {2, 1}, {8, 9}};
  const Curve curve = mean_curve(times);
  ASSERT_EQ(curve.points.size(), 3U);
  EXPECT_NEAR(curve.at(1), 7.0 / 3, 1e-9) << "what is dearer at one row than at two is the same at both";
  EXPECT_NEAR(curve.at(2), 7.0 / 3, 1e-9);
  EXPECT_NEAR(curve.at(8), 9, 1e-9);
}

TEST(CostCurvesTest, ASingleSizeGoesOnWithAnothersSlope) {
  const Curve curve = with_slope({{{16, 10}}}, 0.25);
  EXPECT_NEAR(curve.at(16), 10, 1e-9);
  EXPECT_NEAR(curve.at(4), 7, 1e-9);
  EXPECT_NEAR(curve.at(32), 14, 1e-9);
}

TEST(CostCurvesTest, CallsAreTakenApart) {
  std::vector<ExpertCall> calls;
  for (int touched = 1; touched <= 8; ++touched)
    for (int each : {1, 2, 8})
      calls.push_back({.rows = static_cast<double>(touched * each),
                       .touched = static_cast<double>(touched),
                       .seconds = 5 + touched * (3 + 0.5 * each)});
  const ExpertCosts costs = fit_expert_calls(calls, &ExpertCall::seconds);
  EXPECT_NEAR(costs.call, 5, 1e-6);
  EXPECT_NEAR(costs.expert.at(1), 3.5, 1e-6);
  EXPECT_NEAR(costs.expert.at(8), 7, 1e-6);
}

/// A call of thirty is disturbed, and has few experts.
TEST(CostCurvesTest, DisturbedCallsSayNothingOfWhatACallTakes) {
  std::vector<ExpertCall> calls;
  for (int i = 0; i < 300; ++i) {
    const double touched = 8 + i % 5, rows = 16;
    calls.push_back({.rows = rows, .touched = touched, .seconds = 20 + 2 * touched + rows + (i % 30 == 0 ? 100 : 0)});
    calls.push_back({.rows = 3 * rows, .touched = 2 * touched, .seconds = 20 + 4 * touched + 3 * rows});
  }
  EXPECT_NEAR(fit_expert_calls(calls, &ExpertCall::seconds).call, 20, 1e-6);
}

/// Three of thirty steps of eight rows are disturbed, and so is one of two of nine: both take as long.
TEST(CostCurvesTest, WhatDisturbsFewIsNotWhatTheirSizeTakes) {
  std::vector<SizedTime> times;
  for (int i = 0; i < 30; ++i) times.push_back({8, i % 10 == 0 ? 20.0 : 10.0});
  times.insert(times.end(), {{12, 10}, {12, 60}, {12, 10}});
  const Curve curve = typical_curve(times);
  EXPECT_NEAR(curve.at(12), curve.at(8), 1e-9);
  EXPECT_NEAR(curve.at(8), (30 * 11 + 80) / 33.0, 1e-9) << "all of them together take what they took";
}

/// Of 100 at eight rows weights take 40, of which reading is 10, and 20 are taken once; a row's 5 are what the rest is.
/// Multiplying a row takes 1, so that weights take as long until forty rows.
TEST(CostCurvesTest, OperatorsThatReadWeightsTakeAsLongForMoreRows) {
  const PartWork work{.rows = 8, .all = 100, .weights = 40, .once = 20};
  const Curve curve = with_work(Curve{{{8, 100}}}, work, {.read = 10, .row = 1});
  EXPECT_NEAR(curve.at(16), 20 + 40 + 16 * 5, 1e-9);
  EXPECT_NEAR(curve.at(40), 20 + 40 + 40 * 5, 1e-9);
  EXPECT_NEAR(curve.at(100), 20 + 100 + 100 * 5, 1e-9);
  EXPECT_NEAR(curve.at(4), 20 + 20 + 4 * 5, 1e-9) << "weights that multiplying was slow with take less for fewer rows";
  EXPECT_NEAR(curve.at(1), 20 + 10 + 5, 1e-9) << "but no less than reading them";
  EXPECT_NEAR(with_work(Curve{{{8, 100}}}, work, {}).at(1000), 20 + 40 + 1000 * 5, 1e-9) << "nobody measured the roof";
}

/// Rank 2 takes three times as long, and its prompts have more rows: that it is slow is not what rows take.
TEST(CostCurvesTest, ASlowRankIsNotASteepCurve) {
  std::vector<ExpertCall> calls;
  for (int i = 0; i < 10; ++i) {
    for (const double rows : {8.0, 28.0})
      calls.push_back({.rank = 1, .rows = 8 * rows, .touched = 8, .seconds = 8 * (3 + 0.5 * rows)});
    for (const double rows : {8.0, 36.0})
      calls.push_back({.rank = 2, .rows = 8 * rows, .touched = 8, .seconds = 3 * 8 * (3 + 0.5 * rows)});
  }
  const RankedCosts ranked = fit_ranked_calls(calls, &ExpertCall::seconds);
  EXPECT_NEAR(ranked.factors.at(1), 1, 1e-6);
  EXPECT_NEAR(ranked.factors.at(2), 3, 1e-6);
  EXPECT_NEAR(ranked.costs.expert.at(36), 21, 1e-6);
  EXPECT_NEAR(ranked.costs.expert.at(72), 39, 1e-6);
}

/// Ranks whose experts have other sizes throughout: nothing says that one of them is slow.
TEST(CostCurvesTest, RanksWithoutCommonSizesAreAlike) {
  const std::vector<ExpertCall> calls{{.rank = 1, .rows = 8, .touched = 8, .seconds = 8},
                                      {.rank = 2, .rows = 64, .touched = 8, .seconds = 24}};
  const RankedCosts ranked = fit_ranked_calls(calls, &ExpertCall::seconds);
  EXPECT_EQ(ranked.factors.at(2), 1);
  EXPECT_NEAR(ranked.costs.expert.at(8), 3, 1e-6);
}

/// Two rows of an expert take what its weights take to be read; 2 flop a row at 0.5 a second, so that four rows take as long as
/// those, and a hundred a hundred times 4 s.
TEST(CostCurvesTest, BeyondWhatWasSeenTheRoofDecides) {
  const Curve few{{{1, 16}, {2, 16}}};
  const Curve curve = with_roof(few, 4);
  EXPECT_NEAR(curve.at(1), 16, 1e-9);
  EXPECT_NEAR(curve.at(4), 16, 1e-9);
  EXPECT_NEAR(curve.at(100), 400, 1e-9);
  EXPECT_NEAR(with_roof({{{1, 3}, {64, 64}}}, 4).at(128), 128, 1e-9) << "products that were faster than that stay so";
  EXPECT_NEAR(with_roof(few, 0).at(100), 16, 1e-9) << "nobody measured the roof";
}

}  // namespace
}  // namespace ferry
