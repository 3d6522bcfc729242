#include <gtest/gtest.h>

#include "tests/runtime/plan/small_plan.h"

// A dead worker in plans that are worked out by hand: an expert of 10 bytes is read in 5 s on the coordinator, whose two
// threads read a byte a second each, and in 10 s by a worker that does nothing else.

namespace ferry {
namespace {

const PlanCase kPlain{.workers = 2, .batch = 1, .context = 8};

TEST(StepDeath, OtherHoldersAnswerInTheSameStep) {
  PlanCase asked = kPlain;
  asked.copies = {.name = "2x", .kind = Redundancy::Kind::kTwice};
  const DeathEstimate death = plan_of(3, always(0, 1), asked).death;
  EXPECT_DOUBLE_EQ(death.lost_share, 0);
  // The other one has both experts, and one worker is asked instead of two.
  const double step = 4.5 - 1 + small_transport(1, 1, 2) + 9.25;
  EXPECT_NEAR(death.first_step_s, step, 1e-9);
  EXPECT_NEAR(death.degraded_tokens_per_s, 1 / step, 1e-9);
  EXPECT_NEAR(death.adopted_tokens_per_s, 1 / step, 1e-9);
  EXPECT_GT(death.degraded_s, 0);  // until there are two of each again, which takes another worker
}

TEST(StepDeath, WithoutCopiesTheCoordinatorReadsAndComputes) {
  // Both experts are the first worker's, which is the fullest: of equal ones the first.
  const PlanResult r = plan_of(3, always(0, 1), kPlain);
  EXPECT_DOUBLE_EQ(r.death.lost_share, 0.5);
  // Two experts of 10 bytes are asked for, and two threads read a byte a second each.
  const double read = 2 * 10 / 2.0;
  const double computed = 0.25 + 2 * 4.5;
  const double transport = small_transport(1, 0, 0);  // the survivor is asked, too, for nothing
  const double busy = 1 + computed;                   // which hides the survivor's answer
  const double step = 2 + 1 + 0.5 + busy + std::max(0.0, transport + 0.25 - busy);
  EXPECT_NEAR(r.death.first_step_s, step + read, 1e-9);
  EXPECT_GT(r.death.degraded_tokens_per_s, 1 / (step + read));
  EXPECT_LT(r.death.degraded_tokens_per_s, 1 / step);
  const double idle = 1 - r.worker_use;
  EXPECT_NEAR(r.death.degraded_s, 20 / idle, 1e-9);  // the survivor reads 20 bytes in the time that it has
  EXPECT_GT(r.death.adopted_tokens_per_s, r.death.degraded_tokens_per_s);
}

TEST(StepDeath, WhoIsTheLastLeavesEverythingToTheCoordinator) {
  const DeathEstimate death = plan_of(3, always(0, 1), {.workers = 1, .batch = 1, .context = 8}).death;
  EXPECT_DOUBLE_EQ(death.lost_share, 1);
  EXPECT_DOUBLE_EQ(death.degraded_s, 0);
  EXPECT_DOUBLE_EQ(death.adopted_tokens_per_s, 0);
  const double step = 2 + 1 + 0.5 + 1 + 0.25 + 2 * 4.5;
  EXPECT_NEAR(death.degraded_tokens_per_s, 1 / step, 1e-9);
  EXPECT_NEAR(death.first_step_s, step + 10, 1e-9);
}

TEST(StepDeath, FasterReadingIsNeverWorse) {
  PlanHost host = small_host(3);
  DeathEstimate before = plan_of(host, always(0, 1), kPlain).death;
  for (int i = 0; i < 4; ++i) {
    host.load_bytes_per_s *= 4;
    host.read_bytes_per_s *= 4;
    const DeathEstimate now = plan_of(host, always(0, 1), kPlain).death;
    EXPECT_LT(now.first_step_s, before.first_step_s);
    EXPECT_LT(now.degraded_s, before.degraded_s);
    before = now;
  }
}

TEST(StepDeath, NobodyDiesInOneProcess) {
  const DeathEstimate death = plan_of(1, always(0, 1), {.workers = 0, .batch = 1, .context = 8}).death;
  EXPECT_DOUBLE_EQ(death.first_step_s + death.degraded_tokens_per_s + death.lost_share, 0);
}

}  // namespace
}  // namespace ferry
