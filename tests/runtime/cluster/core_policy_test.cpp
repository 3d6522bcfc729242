#include "runtime/cluster/core_policy.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(CorePolicy, AProcessAloneTakesAllCores) {
  const CorePolicy alone{.cores = 8};
  EXPECT_EQ(alone.default_threads(), 8);
  EXPECT_EQ(alone.default_micro_batch(), 0);
  EXPECT_GT(alone.thread_spin(8).count(), 0);
  EXPECT_EQ(alone.thread_spin(9).count(), 0) << "nine threads share eight cores";
}

TEST(CorePolicy, AWorkerTakesTwiceItsShareOfSharedCores) {
  CorePolicy worker{.cores = 16, .is_coordinator = false, .has_workers = true, .ranks_on_cores = 5};
  EXPECT_EQ(worker.default_threads(), 8) << "four workers and the coordinator";
  worker.coordinators_on_cores = 0;
  EXPECT_EQ(worker.default_threads(), 6) << "five workers";
  worker.coordinators_on_cores = 3;
  EXPECT_EQ(worker.default_threads(), 16) << "two workers beside three coordinators";
  worker.coordinators_on_cores = 0;
  worker.ranks_on_cores = 1;
  EXPECT_EQ(worker.default_threads(), 16);
  worker.cores = 1;
  worker.ranks_on_cores = 7;
  EXPECT_EQ(worker.default_threads(), 1);
}

TEST(CorePolicy, RanksWithCoresOfTheirOwnOverlapAndSpin) {
  CorePolicy policy{.cores = 4, .has_workers = true};
  EXPECT_GT(policy.default_micro_batch(), 0);
  EXPECT_GT(policy.thread_spin(4).count(), 0);
  policy.ranks_on_cores = 2;
  EXPECT_EQ(policy.default_micro_batch(), 0);
  EXPECT_EQ(policy.thread_spin(4).count(), 0);
}

TEST(CorePolicy, PlacesOfOneProcessAreEqual) {
  EXPECT_EQ(place_name("host"), place_name("host"));
  EXPECT_NE(place_name("host"), place_name("other"));
  EXPECT_GE(available_cores(), 1);
}

}  // namespace
}  // namespace ferry
