#include "runtime/plan/expert_fit.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(ExpertFit, GivesBackWhatMadeThePoints) {
  const auto point = [](double experts, double rows) { return ExpertPoint{experts, rows, 0.25 + experts * (1 + 0.5 * rows)}; };
  const std::vector<ExpertPoint> points{point(8, 1), point(16, 1), point(64, 1), point(32, 4), point(64, 4), point(64, 16)};
  RankCosts costs;
  fit_experts(points, costs);
  EXPECT_NEAR(costs.expert_call, 0.25, 1e-12);
  ASSERT_EQ(costs.expert.points.size(), 3U);
  for (const ExpertPoint& p : points) EXPECT_NEAR(costs.expert_call + p.experts * costs.expert.at(p.rows), p.seconds, 1e-9);
}

TEST(ExpertFit, NothingIsNegativeWhateverTheNoise) {
  RankCosts costs;
  // Many experts took less than few.
  fit_experts(std::vector<ExpertPoint>{{8, 1, 3}, {64, 1, 2}, {64, 4, 1}}, costs);
  EXPECT_GE(costs.expert_call, 0);
  EXPECT_LE(costs.expert_call, 3);
  for (const Curve::Point& p : costs.expert.points) EXPECT_GE(p.seconds, 0);
  // A call that came out below zero is none.
  fit_experts(std::vector<ExpertPoint>{{8, 1, 1}, {64, 1, 64}}, costs);
  EXPECT_DOUBLE_EQ(costs.expert_call, 0);
  EXPECT_DOUBLE_EQ(costs.expert.at(1), 1);
}

TEST(ExpertFit, WithoutTwoNumbersOfExpertsThereIsNoCall) {
  RankCosts costs{.expert_call = 7, .expert = {{{9, 9}}}};
  fit_experts(std::vector<ExpertPoint>{{8, 2, 16}}, costs);
  EXPECT_DOUBLE_EQ(costs.expert_call, 0);
  EXPECT_DOUBLE_EQ(costs.expert.at(2), 2);
}

}  // namespace
}  // namespace ferry
