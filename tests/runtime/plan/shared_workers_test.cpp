#include "runtime/plan/shared_workers.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

SharedWork work_of(int64_t coordinators, double own_s, double service_s, double two_s, double same_layer) {
  return {
      .coordinators = coordinators, .own_s = own_s, .service_s = service_s, .service_two_s = two_s, .same_layer = same_layer};
}

TEST(SharedWorkers, OneCoordinatorWaitsForNobody) {
  for (const SharedTurn& turn : {estimate_turn(work_of(1, 3, 2, 3, 1)), unmerged_turn(work_of(1, 3, 2, 3, 1))}) {
    EXPECT_DOUBLE_EQ(turn.layer_s, 5);
    EXPECT_DOUBLE_EQ(turn.wait_s, 0);
    EXPECT_DOUBLE_EQ(turn.merged_share, 0);
    EXPECT_DOUBLE_EQ(turn.worker_use, 0.4);
  }
}

TEST(SharedWorkers, WhoComesMeetsHalfOfAService) {
  // One alone keeps the workers busy for 2 of 5 seconds; the other comes then, and waits for 1 of these 2.
  const SharedTurn turn = unmerged_turn(work_of(2, 3, 2, 4, 1));
  EXPECT_NEAR(turn.wait_s, 0.4 * 1, 1e-12);
  EXPECT_NEAR(turn.layer_s, 5.4, 1e-12);
  EXPECT_NEAR(turn.worker_use, 4 / 5.4, 1e-12);
}

TEST(SharedWorkers, TwoAloneLeaveNobodyBehindToMergeWith) {
  EXPECT_DOUBLE_EQ(estimate_turn(work_of(2, 3, 2, 2, 1)).merged_share, 0);
  EXPECT_DOUBLE_EQ(estimate_turn(work_of(2, 0.1, 2, 2, 1)).merged_share, 0);
}

TEST(SharedWorkers, WorkersThatAreBusyAnswerNoFaster) {
  for (int64_t m = 2; m <= 16; m *= 2) {
    const SharedTurn turn = unmerged_turn(work_of(m, 0.5, 2, 4, 0));
    EXPECT_GE(turn.layer_s, static_cast<double>(m) * 2 - 1e-12) << m;
    EXPECT_LE(turn.worker_use, 1) << m;
  }
}

TEST(SharedWorkers, MoreCoordinatorsAnswerMoreButNeverMoreThanSoManyTimesOne) {
  for (const double service : {0.1, 1.0, 5.0}) {
    for (const double same_layer : {0.0, 0.25, 1.0}) {
      double before = 0;
      const double one = 1 / estimate_turn(work_of(1, 3, service, 1.5 * service, same_layer)).layer_s;
      for (int64_t m = 1; m <= 8; ++m) {
        const SharedTurn turn = estimate_turn(work_of(m, 3, service, 1.5 * service, same_layer));
        const double rate = static_cast<double>(m) / turn.layer_s;
        EXPECT_GE(rate, before * (1 - 1e-9)) << m << " " << service << " " << same_layer;
        EXPECT_LE(rate, static_cast<double>(m) * one * (1 + 1e-9)) << m << " " << service << " " << same_layer;
        EXPECT_GE(turn.wait_s, -1e-12);
        EXPECT_GE(turn.merged_share, 0);
        EXPECT_LE(turn.merged_share, 1);
        before = rate;
      }
    }
  }
}

TEST(SharedWorkers, MergingIsRareAtManyLayersAndGrowsWithTheQueue) {
  const auto share = [](int64_t m, double same_layer) { return estimate_turn(work_of(m, 1, 2, 2.5, same_layer)).merged_share; };
  EXPECT_GT(share(3, 1), 0.3);
  EXPECT_LT(share(3, same_layer_chance(40)), 0.05);
  EXPECT_GT(share(3, same_layer_chance(40)), 0);
  EXPECT_LT(share(3, 0.1), share(6, 0.1));
  EXPECT_DOUBLE_EQ(share(6, 0), 0);
}

TEST(SharedWorkers, OnOneHostEverythingIsDoneInTurn) {
  SharedWork work = work_of(3, 3 * 2, 1, 1.5, 1.0 / 8);
  work.is_together = true;
  const SharedTurn none = unmerged_turn(work), turn = estimate_turn(work);
  EXPECT_DOUBLE_EQ(none.layer_s, 3 * 2 + 3 * 1);
  EXPECT_DOUBLE_EQ(none.worker_use, 1.0 / 3);
  // Two others, each at the workers for a third of its time, at the same layer as an eighth of the time.
  const double partner = 2.0 / 3 / 8;
  EXPECT_NEAR(turn.merged_share, 2 * partner / (1 + partner), 0.01);
  EXPECT_LT(turn.layer_s, none.layer_s);
  work.coordinators = 1;
  work.own_s = 2;
  EXPECT_DOUBLE_EQ(estimate_turn(work).layer_s, 3);
}

TEST(SharedWorkers, MergingHelpsWhereRowsShareExperts) {
  const SharedTurn merged = estimate_turn(work_of(8, 1, 2, 2.2, 1)), none = unmerged_turn(work_of(8, 1, 2, 2.2, 1));
  EXPECT_LT(merged.layer_s, none.layer_s);
  EXPECT_LT(merged.worker_use * merged.layer_s, none.worker_use * none.layer_s + 1e-12);
}

}  // namespace
}  // namespace ferry
