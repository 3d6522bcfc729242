#include "runtime/actions/worker_overlap.h"

#include <gtest/gtest.h>

#include "runtime/actions/plan_replay.h"
#include "tests/runtime/actions/replay_fixture.h"
#include "tests/support/draws.h"

namespace ferry {
namespace {

using test::KnownCapture;
using test::KnownRun;

struct Found {
  double slowing = 0;
  double imbalance = 0;  // over what it is
  bool are_alike = false;
};

/// Of `steps` steps; `spread` puts each rank on a host of its own.
Found find(const KnownRun& known, int steps = 300, bool spread = false) {
  KnownCapture run(known);
  for (int i = 0; i < steps; ++i) run.step(Phase::kDecode, 8 + i % 5, 8 + i % 5);
  for (int32_t r = 0; spread && r <= known.num_workers; ++r) run.rank(r).boot_id = std::to_string(r);
  const double uneven_us = run.uneven_us();
  const ReportInput input(run.take());
  const Exchanges exchanges = find_exchanges(input);
  const WorkerOverlap overlap(input, exchanges, find_expert_calls(input));
  Found found{.slowing = overlap.slowing()};
  for (std::size_t i = 0; i < exchanges.list.size(); ++i) found.imbalance += 1e6 * overlap.imbalance(i) / uneven_us;
  return found;
}

TEST(WorkerOverlapTest, WhatWorkersLoseToEachOtherIsFound) {
  for (const int32_t workers : {2, 4, 8}) {
    for (const double share : {0.0, 0.4, 0.9}) {
      const double slowing = share / workers;
      const Found found = find({.num_workers = workers, .link_us = 5, .slowing = slowing, .hot_worker = 0});
      EXPECT_NEAR(found.slowing, slowing, 0.05 / workers) << workers << " workers";
      EXPECT_NEAR(found.imbalance, 1, 0.05) << workers << " workers, " << slowing;
    }
  }
}

TEST(WorkerOverlapTest, ASlowWorkerIsNotDisturbedForThat) {
  const Found found = find({.num_workers = 4, .link_us = 5, .slow = {1, 1, 4, 1}, .hot_worker = 0});
  EXPECT_NEAR(found.slowing, 0, 1e-6);
  EXPECT_NEAR(found.imbalance, 1, 1e-3);
}

/// How many times as long as the first worker, which has most rows, the last one is taken to need for one row of an expert.
double last_over_first(const KnownRun& known) {
  KnownCapture run(known);
  for (int i = 0; i < 600; ++i) run.step(Phase::kDecode, 1 + i % 24, 1 + i % 24);  // so that both have experts of some sizes
  const ReportInput input(run.take());
  const CaptureReplay replay(input);
  return replay.costs->hosts.back().alone.expert.at(1) / replay.costs->hosts.at(1).alone.expert.at(1);
}

/// Who has little to do has others at work beside it all the time.
TEST(WorkerOverlapTest, WhoHasLittleToDoIsNotTakenToBeSlow) {
  EXPECT_NEAR(last_over_first({.num_workers = 2, .link_us = 5, .slowing = 0.4, .hot_worker = 0}), 1, 1e-9);
  EXPECT_NEAR(last_over_first({.num_workers = 2, .link_us = 5, .slow = {1, 3}, .hot_worker = 0}), 3, 0.1);
}

/// A call that takes longer for another reason overlaps more with others for that.
TEST(WorkerOverlapTest, WhatDisturbsOneWorkerAloneIsNoOverlap) {
  using Noises = std::vector<double>;
  for (const int32_t workers : {2, 4, 8}) {
    for (const double noise : test::draws(Noises{0.1, 0.2, 0.4}, Noises{0.4})) {
      const Found found = find({.num_workers = workers, .link_us = 5, .noise = noise, .hot_worker = 0}, 1000);
      EXPECT_EQ(found.slowing, 0) << workers << " workers, noise " << noise;
      EXPECT_NEAR(found.imbalance, 1, 1e-3) << workers << " workers, noise " << noise;
    }
  }
}

TEST(WorkerOverlapTest, WhatWorkersLoseIsFoundAmongNoise) {
  for (const double noise : {0.1, 0.2}) {
    const Found found = find({.num_workers = 4, .link_us = 5, .slowing = 0.2, .noise = noise, .hot_worker = 0}, 1000);
    EXPECT_NEAR(found.slowing, 0.2, 0.02) << noise;
  }
}

/// Whatever calls beside each other look like: what two hosts have, they do not share.
TEST(WorkerOverlapTest, WorkersOfOtherHostsSlowNobodyDown) {
  EXPECT_EQ(find({.num_workers = 2, .link_us = 5, .slowing = 0.3, .hot_worker = 0}, 300, true).slowing, 0);
}

/// Where all calls are alike nothing tells what they lose.
TEST(WorkerOverlapTest, NothingIsSaidOfCallsThatAreAlike) {
  EXPECT_EQ(find({.num_workers = 2, .num_experts = 2, .link_us = 5, .slowing = 0.3}, 20).slowing, 0);
}

}  // namespace
}  // namespace ferry
