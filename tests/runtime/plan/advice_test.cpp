#include "runtime/plan/advice.h"

#include <gtest/gtest.h>

#include "tests/runtime/plan/small_plan.h"

namespace ferry {
namespace {

struct Advised {
  std::vector<PlanResult> results;
  std::vector<PlanAdvice> advice;
};

Advised advice_of(const PlanHost& host, const RoutingTrace& trace, const std::vector<PlanCase>& cases) {
  const PlanModel model = small_model();
  const RoutingRows rows(trace);
  StepModel steps(model, {&host, 1}, rows);
  Advised advised;
  for (const PlanCase& asked : cases) advised.results.push_back(steps.plan(asked));
  advised.advice = advise(steps, advised.results);
  return advised;
}

TEST(PlanAdvice, UnevenExpertsAreWorthSpreading) {
  // All rows take experts 0 and 1, which lie on one of two workers; spread, each has one.
  const Advised uneven = advice_of(small_host(3), always(0, 1), {{.workers = 2, .batch = 1, .context = 8}});
  ASSERT_EQ(uneven.advice.size(), 1U);
  EXPECT_EQ(uneven.advice[0].balance, "--spread");
  EXPECT_GT(uneven.advice[0].balance_gain, kPlanGain);
  EXPECT_NE(advice_text(uneven.advice[0]).find("balancing (EPLB): yes"), std::string::npos);
  const Advised even = advice_of(small_host(3), always(0, 2), {{.workers = 2, .batch = 1, .context = 8}});
  EXPECT_NEAR(even.advice[0].balance_gain, 0, 1e-9);
  EXPECT_NE(advice_text(even.advice[0]).find("balancing (EPLB): no (+0 %) by --spread"), std::string::npos);
}

TEST(PlanAdvice, ACoordinatorMoreHelpsWhereItsWorkIsMostOfAStep) {
  PlanHost busy = small_host(4);
  busy.ram_bytes = 1000;
  busy.alone.own_decode = {{{1, 100}, {2, 200}}};
  const std::vector<PlanCase> cases{{.workers = 2, .batch = 2, .context = 8}};
  const Advised yes = advice_of(busy, always(0, 2), cases);
  ASSERT_TRUE(yes.advice[0].has_second);
  EXPECT_FALSE(yes.advice[0].takes_worker);
  EXPECT_EQ(yes.advice[0].second.coordinators, 2);
  EXPECT_GT(yes.advice[0].second_gain, 0.5);
  EXPECT_NE(advice_text(yes.advice[0]).find("a coordinator more: yes"), std::string::npos);
  PlanHost idle = small_host(3);
  idle.ram_bytes = 1000;
  const Advised no = advice_of(idle, always(0, 2), cases);
  EXPECT_TRUE(no.advice[0].takes_worker);  // there are three machines
  EXPECT_EQ(no.advice[0].second.workers, 1);
  EXPECT_NE(advice_text(no.advice[0]).find("in the place of a worker"), std::string::npos);
}

TEST(PlanAdvice, OneProcessHasNothingToDivide) {
  const Advised one = advice_of(small_host(1), always(0, 2), {{.workers = 0, .batch = 1, .context = 8}});
  EXPECT_EQ(
      advice_text(one.advice[0]),
      "batch 1: best one process; balancing (EPLB): no, nothing to balance; a coordinator more: no, one process has all\n");
  const Advised lonely = advice_of(small_host(3), always(0, 2), {{.workers = 1, .batch = 1, .context = 8}});
  EXPECT_NE(advice_text(lonely.advice[0]).find("a coordinator more: no, nothing left for it"), std::string::npos);
}

}  // namespace
}  // namespace ferry
