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
