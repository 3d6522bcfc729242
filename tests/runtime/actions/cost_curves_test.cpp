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

}  // namespace
}  // namespace ferry
