#include "runtime/fault/fault_plan.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/fault/fault_injector.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = PlannedFault::Kind;

TEST(FaultPlan, IsReadPieceByPiece) {
  const std::vector<PlannedFault> plan = parse_fault_plan(
      "kill:2@step=100, stop:1@3s+5.5s,cut:0-3@step=0 ,slow:4x2.5,slow:5x3@1s,slow:6+0.02s@step=4,nan:7,nan:8@step=3");
  ASSERT_EQ(plan.size(), 8U);
  EXPECT_EQ(plan[0].kind, Kind::kKill);
  EXPECT_EQ(plan[0].rank, Rank{2});
  EXPECT_EQ(plan[0].step, 100);
  EXPECT_FALSE(plan[0].time);
  EXPECT_EQ(plan[1].kind, Kind::kStop);
  EXPECT_EQ(plan[1].time, seconds(3));
  EXPECT_EQ(plan[1].duration, milliseconds(5500));
  EXPECT_EQ(plan[2].kind, Kind::kCut);
  EXPECT_EQ(plan[2].rank, Rank{3});
  EXPECT_EQ(plan[3].kind, Kind::kSlow);
  EXPECT_EQ(plan[3].factor, 2.5);
  EXPECT_FALSE(plan[3].step || plan[3].time) << "from the start";
  EXPECT_EQ(plan[4].time, seconds(1));
  EXPECT_EQ(plan[5].rank, Rank{6});
  EXPECT_EQ(plan[5].duration, milliseconds(20));
  EXPECT_EQ(plan[5].kind, Kind::kDelay);
  EXPECT_EQ(plan[5].step, 4);
  EXPECT_EQ(plan[6].kind, Kind::kNan);
  EXPECT_EQ(plan[6].rank, Rank{7});
  EXPECT_FALSE(plan[6].step || plan[6].time) << "from the start";
  EXPECT_EQ(plan[7].step, 3);
}

TEST(FaultPlan, RefusesWhatIsNoneAndNamesIt) {
  for (const char* text : {"",
                           "kill",
                           "kill:1",
                           "kill:@1s",
                           "kill:x@1s",
                           "kill:-1@1s",
                           "kill:1@1",
                           "kill:1@step=",
                           "kill:1@step=-1",
                           "kill:1@-1s",
                           "kill:1@1s+1s",
                           "stop:1@1s",
                           "stop:1@1s+",
                           "stop:1@+1s",
                           "cut:1@1s",
                           "cut:1-2@1s",
                           "cut:0-0@1s",
                           "slow:1",
                           "slow:1x",
                           "slow:1x0.5",
                           "slow:1x1001",
                           "slow:1x2@",
                           "slow:1+",
                           "slow:1+2",
                           "slow:+2s",
                           "slow:1+-2s",
                           "slow:1x2+2s",
                           "burn:1@1s",
                           "nan:0",
                           "nan:1@",
                           "nan:1x2",
                           "kill:1@nans",
                           "kill:1@1s,",
                           "kill:1@1s,,kill:2@1s"}) {
    try {
      parse_fault_plan(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("is no fault; allowed: kill:RANK@WHEN"), std::string::npos) << error.what();
    }
  }
}

TEST(FaultInjector, CutsAreTheCoordinatorsEachOnceAndNotBeforeTheirStep) {
  const std::vector<PlannedFault> plan = parse_fault_plan("cut:0-3@step=5,cut:0-1@step=7,kill:2@step=6");
  FaultInjector coordinator(plan, Rank{0}), worker(plan, Rank{3});
  for (int64_t step = 0; step < 5; ++step) coordinator.begin_step(step);
  EXPECT_TRUE(coordinator.take_cuts().empty());
  coordinator.begin_step(8);  // steps may be left out
  EXPECT_EQ(coordinator.take_cuts(), (std::vector<Rank>{{3}, {1}}));
  coordinator.begin_step(9);
  EXPECT_TRUE(coordinator.take_cuts().empty());
  worker.begin_step(9);
  EXPECT_TRUE(worker.take_cuts().empty());
}

TEST(FaultInjector, ASlowRankTakesLongerByWhatItWorkedOrByAsMuchEachTime) {
  FaultInjector by_factor(parse_fault_plan("slow:1x3"), Rank{1}), by_time(parse_fault_plan("slow:1+0.002s@step=2"), Rank{1});
  EXPECT_EQ(by_factor.end_work(milliseconds(2)), milliseconds(4));
  EXPECT_EQ(by_time.end_work(milliseconds(7)), milliseconds(0)) << "not yet";
  by_time.begin_step(2);
  FaultInjector both(parse_fault_plan("slow:1+0.001s,slow:1x2"), Rank{1});
  EXPECT_EQ(both.end_work(milliseconds(3)), milliseconds(4));
  for (const milliseconds worked : {milliseconds(0), milliseconds(7)}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(by_time.end_work(worked), milliseconds(2));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(2));
  }
}

TEST(FaultInjector, RepliesAreSpoiledOnTheRankThatIsNamedAndFromItsStepOn) {
  const std::vector<PlannedFault> plan = parse_fault_plan("nan:2@step=6");
  FaultInjector named(plan, Rank{2}), other(plan, Rank{1});
  named.begin_step(5);
  EXPECT_FALSE(named.spoils_replies());
  for (const int64_t step : {6, 7}) {
    named.begin_step(step);
    EXPECT_TRUE(named.spoils_replies());
  }
  other.begin_step(7);
  EXPECT_FALSE(other.spoils_replies());
}

TEST(FaultInjector, KillsTheRankThatIsNamedAndNoOther) {
  const std::vector<PlannedFault> plan = parse_fault_plan("kill:2@step=6");
  EXPECT_EXIT(
      {
        FaultInjector injector(plan, Rank{2});
        injector.begin_step(5);
        std::fprintf(stderr, "not yet\n");
        injector.begin_step(6);
      },
      testing::KilledBySignal(SIGKILL), "not yet");
  EXPECT_EXIT(
      {
        const FaultInjector injector(parse_fault_plan("kill:2@0s"), Rank{2});
        std::this_thread::sleep_for(kTestLimit);
      },
      testing::KilledBySignal(SIGKILL), "--fault kills rank 2");
  FaultInjector other(plan, Rank{1});
  other.begin_step(100);
}

}  // namespace
}  // namespace ferry
