#include "comm/liveness.h"

#include <atomic>

#include "tests/comm/group_cluster.h"
#include "tests/comm/patient_gloo.h"
#include "tests/comm/thread_cluster.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

class StopOrder : public testing::TestWithParam<int> {};

// The ranks stop one after the other in every rotation of their order. A goodbye is not a death.
TEST_P(StopOrder, CleanStopsReportNoLoss) {
  std::atomic<int> num_lost{0};
  run_on_threads(4, [&](Group& local) {
    LivenessMonitor monitor(local, suite::patient_gloo(), [&](Rank, const std::string&) { ++num_lost; });
    for (int turn = 0; turn < local.size(); ++turn) {
      if ((local.rank().value + GetParam()) % local.size() == turn) monitor.stop();
      local.barrier(test::in_good_time());
    }
    monitor.stop();
  });
  EXPECT_EQ(num_lost, 0);
}

TEST(Liveness, AllMayStopAtOnce) {
  std::atomic<int> num_lost{0};
  for (int round = 0; round < 10; ++round) {
    run_on_threads(4, [&](Group& local) {
      LivenessMonitor monitor(local, suite::patient_gloo(), [&](Rank, const std::string&) { ++num_lost; });
      monitor.stop();
    });
  }
  EXPECT_EQ(num_lost, 0);
}

INSTANTIATE_TEST_SUITE_P(FirstToStop, StopOrder, testing::Range(0, 4));

// Rank 2 goes without a word: rank 0 hears of it once, nobody else does, and goes on watching. Then rank 0 goes too.
TEST(Liveness, ALossIsReportedOnceToTheWatcher) {
  run_on_threads(3, [](Group& local) {
    std::atomic<int> num_lost{0};
    std::atomic<int> lost_rank{-1};
    auto monitor = std::make_unique<LivenessMonitor>(local, suite::patient_gloo(), [&](Rank lost, const std::string& reason) {
      EXPECT_NE(reason, "");
      lost_rank = lost.value;
      ++num_lost;
    });
    const auto await_loss = [&] { eventually([&] { return num_lost > 0; }, "the loss of a rank"); };
    if (local.rank() == Rank{2}) monitor.reset();
    if (local.rank() == Rank{0}) await_loss();
    local.barrier(test::in_good_time());
    EXPECT_EQ(num_lost, local.rank() == Rank{0} ? 1 : 0);
    local.barrier(test::in_good_time());  // all have looked before rank 0 goes
    if (local.rank() == Rank{0}) {
      EXPECT_EQ(lost_rank, 2);
      monitor.reset();
    }
    if (local.rank() == Rank{1}) {
      await_loss();
      EXPECT_EQ(lost_rank, 0);
      monitor->stop();
    }
    local.barrier(test::in_good_time());
    EXPECT_EQ(num_lost, local.rank() == Rank{2} ? 0 : 1);
  });
}

TEST(Liveness, ALonelyRankHasNobodyToWatch) {
  run_on_threads(1, [](Group& local) {
    LivenessMonitor monitor(local, suite::patient_gloo(), [](Rank, const std::string&) { ADD_FAILURE(); });
    monitor.stop();
  });
}

}  // namespace
}  // namespace ferry
