#include "runtime/worker_record.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(WorkerRecord, TellsTheLastChangeOfEachWorkerByRank) {
  WorkerRecord record;
  record.note({.rank = {2}, .to = WorkerState::kHealthy});
  record.note({.rank = {1}, .to = WorkerState::kHealthy});
  EXPECT_TRUE(record.report().missing().empty());
  record.note({.rank = {2}, .from = WorkerState::kHealthy, .to = WorkerState::kSuspect, .reason = "late"});
  const WorkerState before = record.note({.rank = {2}, .to = WorkerState::kMasked, .reason = "it left"});
  EXPECT_EQ(before, WorkerState::kSuspect) << "as it was noted, whatever its seat knows";
  const WorkerReport report = record.report();
  ASSERT_EQ(report.workers.size(), 2U);
  EXPECT_EQ(report.workers[0].rank, 1);
  EXPECT_EQ(report.workers[0].state, WorkerState::kHealthy);
  EXPECT_EQ(report.workers[1].state, WorkerState::kMasked);
  EXPECT_EQ(report.workers[1].reason, "it left");
  EXPECT_GT(report.workers[1].changed_s, 1e9);
  EXPECT_EQ(report.changes, (std::array<int64_t, kNumWorkerStates>{0, 2, 1, 1}));
  EXPECT_EQ(report.count(WorkerState::kHealthy), 1);
  ASSERT_EQ(report.missing().size(), 1U);
  EXPECT_EQ(report.missing()[0].rank, 2);
}

TEST(WorkerRecord, KnowsWhereWorkersAreUntilOthersCome) {
  WorkerRecord record;
  record.set_home({1}, {.host = "node1", .address = "unix"});
  record.note({.rank = {1}, .to = WorkerState::kHealthy});
  record.note({.rank = {1}, .to = WorkerState::kMasked, .reason = "it died", .is_lost = true});
  record.note({.rank = {1}, .to = WorkerState::kGone, .reason = "it died", .is_lost = true});
  EXPECT_EQ(record.home({1}).host, "node1");
  EXPECT_TRUE(record.report().workers[0].is_lost);
  record.note({.rank = {1}, .to = WorkerState::kJoining, .reason = "it has come", .home = {"node2", "10.0.0.5:4711"}});
  const WorkerSight sight = record.report().workers[0];
  EXPECT_EQ(sight.home.host, "node2");
  EXPECT_EQ(sight.home.address, "10.0.0.5:4711");
  EXPECT_FALSE(sight.is_lost);
  EXPECT_EQ(record.home({7}).host, "") << "nobody is there";
}

TEST(WorkerRecord, AChangeIsALineThatSaysWhoWhyWhereAndWhen) {
  const std::chrono::system_clock::time_point time(std::chrono::milliseconds(1'796'029'200'007));
  const WorkerChange change{.rank = {2}, .to = WorkerState::kMasked, .reason = "rank 2:\nit died"};
  EXPECT_EQ(describe_change(change, {.host = "node1", .address = "10.0.0.5:4711"}, time),
            "rank 2 is masked: rank 2:\\x0ait died (host node1, 10.0.0.5:4711; 2026-11-30T09:00:00.007Z)");
  EXPECT_EQ(describe_change(change, {.host = "", .address = "unix"}, time),
            "rank 2 is masked: rank 2:\\x0ait died (unix; 2026-11-30T09:00:00.007Z)");
  EXPECT_EQ(describe_change(change, {}, time), "rank 2 is masked: rank 2:\\x0ait died (2026-11-30T09:00:00.007Z)");
}

TEST(WorkerRecord, CountsWithoutWorkersAreThere) {
  WorkerRecord record;
  record.take(WorkerSeats({}), {.by_workers = 3, .by_coordinator = 4}, {.all = 9, .merged = 2}, {.fixed = 3, .per_row = 1}, 5);
  const WorkerReport report = record.report();
  EXPECT_TRUE(report.workers.empty());
  EXPECT_EQ(report.covered.by_workers, 3);
  EXPECT_EQ(report.covered.by_coordinator, 4);
  EXPECT_EQ(report.expert_cost.fixed, 3);
  EXPECT_EQ(report.kept_bytes, 5);
}

}  // namespace
}  // namespace ferry
