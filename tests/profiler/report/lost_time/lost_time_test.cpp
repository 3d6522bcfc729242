#include "profiler/report/lost_time/lost_time.h"

#include <gtest/gtest.h>

#include "profiler/report/findings/rank_findings.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/views.h"
#include "runtime/base/worker_state.h"
#include "tests/support/draws.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;

/// When what happens in an exchange, in us after its begin. Replies take 5 us.
struct Part {
  uint64_t dispatched = 0, arrived = 5, replied = 45;
  uint32_t rows = 8;
};

/// Steps of one exchange each, 100 us long unless something takes longer; the coordinator has work of its own for 20 us.
class Race {
 public:
  Race() : small(3, 0) {}

  /// Rows to both workers; `ready_us`: the coordinator begins to wait; `held_us`: it takes the first reply so much later, and
  /// the second `taking_us` after it was there.
  void step(const Part& one, const Part& two, uint64_t ready_us = 20, uint64_t held_us = 0, uint64_t taking_us = 0) {
    const test::SmallCapture::Where where{number_, 0, 0};
    const uint64_t back_one = (one.replied + 5) * kUs, back_two = (two.replied + 5) * kUs;
    const uint64_t seen_one = begin() + std::max(ready_us * kUs, back_one) + held_us * kUs;
    const uint64_t seen_two = std::max(seen_one, begin() + back_two) + taking_us * kUs;
    add(1, one, begin() + ready_us * kUs, seen_one, where);
    add(2, two, seen_one, seen_two, where);
    end_ = seen_two + 20 * kUs;
    small.step(number_++, Phase::kDecode, begin(), end_, 1, 1);
    last_begin_ = begin();
    begin_ = end_;
    for (RankCapture& rank : small.capture.ranks) rank.end = end_ + 1;
  }
  void quiet_steps(int count) {
    for (int i = 0; i < count; ++i) step({}, {.dispatched = 1, .arrived = 6, .replied = 46});
  }
  /// In the last step.
  void not_running(int32_t rank, uint64_t from_us, uint64_t to_us, uint32_t core_wait_us = 0) {
    small.span(rank, Zone::kNotRunning, last_begin_ + from_us * kUs, last_begin_ + to_us * kUs, core_wait_us);
  }
  /// In the last step, in a layer in which the rank never replies: then it is doubted.
  void waits_in_vain(int32_t rank, uint64_t from_us, uint64_t to_us) {
    const test::SmallCapture::Where where{number_ - 1, 1, 0};
    const uint64_t end = last_begin_ + to_us * kUs;
    small.span(0, Zone::kWaitCombine, last_begin_ + from_us * kUs, end, 0, static_cast<uint32_t>(rank), where);
    small.span(0, Zone::kWorkerChange, end, end, static_cast<uint32_t>(WorkerState::kSuspect), static_cast<uint32_t>(rank),
               where);
  }
  /// In the last step; counted `at_us` after its begin, since `since_us` or since the reading before. Of the rank's engine.
  void core_wait(int32_t rank, uint32_t us, int16_t layer, uint64_t at_us = 0, std::optional<uint64_t> since_us = {}) {
    const uint64_t at = last_begin_ + at_us * kUs, since = last_begin_ + since_us.value_or(at_us) * kUs;
    small.span(rank, Zone::kCoreWait, since, at, us, 100 + static_cast<uint32_t>(rank), {number_ - 1, layer, 0});
  }
  /// In the last step, of a helper of the rank's pool; counted at its begin.
  void helper_core_wait(int32_t rank, uint32_t us) {
    const uint64_t at = last_begin_;
    small.span(rank, Zone::kCoreWait, at, at, us, 700, {number_ - 1, kNoLayer, 0});
  }
  LostTime find() { return find_lost_time(ReportInput(small.capture)); }
  std::string findings() {
    const ReportInput input(small.capture);
    std::string kinds;
    for (const Finding& finding : find_costly_ranks(input, find_lost_time(input)))
      kinds += finding.kind + " " + std::to_string(finding.rank) + ";";
    return kinds;
  }

  test::SmallCapture small;

 private:
  uint64_t begin() const { return begin_; }
  void add(int32_t worker, const Part& part, uint64_t wait_begin, uint64_t seen, const test::SmallCapture::Where& where) {
    const uint64_t t = begin();
    const auto w = static_cast<uint32_t>(worker);
    small.exchange(worker, where, t + part.dispatched * kUs, t + part.arrived * kUs, t + part.replied * kUs, seen, part.rows,
                   part.rows * 10);
    small.span(0, Zone::kWaitCombine, wait_begin, seen, 0, w, where);
    small.span(0, Zone::kRankRows, seen, seen, part.rows, w, where);
  }

  uint32_t number_ = 0;
  uint64_t begin_ = 1000, end_ = 0, last_begin_ = 0;
};

TEST(LostTimeTest, AQuietRaceCostsNobodyAnything) {
  Race race;
  race.quiet_steps(50);
  const LostTime lost = race.find();
  EXPECT_EQ(lost.ranks[0].total() + lost.ranks[1].total(), 0);
  EXPECT_LE(lost.ranks[2].total(), 50 * 1000) << "its rows are sent a microsecond later";
  EXPECT_EQ(race.findings(), "");
}

/// Where the others get no rows, what these would have taken them is told from where they do.
TEST(LostTimeTest, WhoHasAllRowsIsNotSlowForThat) {
  const Part none{.dispatched = 1, .arrived = 6, .replied = 6, .rows = 0};
  Race race;
  race.quiet_steps(20);  // 40 us for 8 rows
  for (int i = 0; i < 20; ++i) race.step({.replied = 5 + 80, .rows = 16}, none);
  const LostTime lost = race.find();
  EXPECT_GE(lost.ranks[1].at(Loss::kMoreRows), 20 * 70 * 1000);
  EXPECT_EQ(lost.ranks[1].at(Loss::kSlow), 0);
}

TEST(LostTimeTest, WhoHasAllRowsAndIsSlowIsBoth) {
  const Part none{.dispatched = 1, .arrived = 6, .replied = 6, .rows = 0};
  Race race;
  race.quiet_steps(20);
  for (int i = 0; i < 15; ++i) race.step({.replied = 5 + 320, .rows = 16}, none);  // others take 80 us for as many
  const LostTime lost = race.find();
  EXPECT_EQ(lost.ranks[1].at(Loss::kSlow), 15 * 240 * 1000);
  EXPECT_EQ(lost.ranks[1].at(Loss::kMoreRows), 15 * 70 * 1000) << "the coordinator waits from 20 us on";
}

/// What a call takes whatever it is given is not taken twice for twice the rows.
TEST(LostTimeTest, WhatRowsTakeIsWhatOthersTakeForAsMany) {
  Race race;
  for (int i = 0; i < 20; ++i) {
    race.step({.replied = 5 + 60, .rows = 16}, {.dispatched = 1, .arrived = 6, .replied = 6 + 60, .rows = 16});
    race.step({}, {.dispatched = 1, .arrived = 6, .replied = 6 + 80, .rows = 16});  // 20 us longer than the other one's 16 rows
  }
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[2].at(Loss::kSlow)), 20 * 20e3, 20 * 1.1e3);
  EXPECT_NEAR(static_cast<double>(lost.ranks[2].at(Loss::kMoreRows)), 20 * 20e3, 20 * 1.1e3);
}

TEST(LostTimeTest, WhereNobodyElseEverHasRowsNothingTellsOfSlowness) {
  Race race;
  for (int i = 0; i < 20; ++i) race.step({}, {.dispatched = 1, .arrived = 6, .replied = 6, .rows = 0});
  EXPECT_EQ(race.find().ranks[1].at(Loss::kSlow), 0);
}

TEST(LostTimeTest, AWorkerThatIsStoppedUntilItIsDoubted) {
  Race race;
  race.quiet_steps(10);
  race.not_running(2, 52, 90);
  race.waits_in_vain(2, 53, 69);
  const LostTime lost = race.find();
  EXPECT_EQ(lost.ranks[2].at(Loss::kStopped), 16 * 1000);
  EXPECT_EQ(lost.waits[9].not_running, 16 * 1000);
  EXPECT_EQ(lost.ranks[1].total(), 0);
}

TEST(LostTimeTest, AWorkerThatIsStopped) {
  Race race;
  for (int stop = 0; stop < 4; ++stop) {
    race.quiet_steps(10);
    race.step({}, {.dispatched = 1, .arrived = 30'006, .replied = 30'046});
    race.not_running(2, 2, 30'002);
  }
  const LostTime lost = race.find();
  // It is back at 30,051 us, the other worker at 50.
  EXPECT_EQ(lost.ranks[2].at(Loss::kStopped), 4 * 30'000 * 1000);
  ASSERT_EQ(lost.ranks[2].stops.size(), 4U);
  for (const Interval& stop : lost.ranks[2].stops) EXPECT_EQ(stop.end - stop.begin, 30 * kMs);
  EXPECT_EQ(lost.ranks[1].total(), 0);
  EXPECT_EQ(lost.ranks[0].total(), 0);
  EXPECT_EQ(race.findings(), "stopped 2;");
  EXPECT_GE(lost.waits[10].not_running, 29'900'000);
}

TEST(LostTimeTest, AStopWhileAnotherIsLastAnywayCostsNothing) {
  Race race;
  race.quiet_steps(10);
  race.step({.arrived = 5, .replied = 9'000}, {.dispatched = 1, .arrived = 6, .replied = 8'000});
  race.not_running(2, 10, 7'900);
  EXPECT_EQ(race.find().ranks[2].at(Loss::kStopped), 0);
}

TEST(LostTimeTest, ACoordinatorThatIsStoppedWhileItWaitsIsChargedAndNotItsWorkers) {
  Race race;
  race.quiet_steps(10);
  race.step({}, {}, 20, 30'000);
  race.not_running(0, 30, 30'030);
  race.quiet_steps(10);
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[0].at(Loss::kStopped)), 30e6, 2e4) << "back at 50 us, taken in at 30,050";
  EXPECT_LE(lost.ranks[1].total() + lost.ranks[2].total(), 20'000);
  EXPECT_EQ(race.findings(), "stopped 0;");
}

TEST(LostTimeTest, OfAStopThatExpertsHideOnlyTheRestIsCharged) {
  Race race;
  race.step({.arrived = 5, .replied = 9'000}, {.dispatched = 1, .arrived = 6, .replied = 9'001}, 10'000);
  race.not_running(0, 1'000, 9'980);
  // Without the stop of 8,980 us the coordinator would have been ready at 1,020 us and have had the last reply at 9,001.
  EXPECT_NEAR(static_cast<double>(race.find().ranks[0].at(Loss::kStopped)), 1e6, 1e4);
}

TEST(LostTimeTest, AWorkerWithoutACoreIsNeitherStoppedNorSlow) {
  Race race;
  for (int i = 0; i < 20; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 2'006, .replied = 4'046});
    race.core_wait(2, 4'000, 0, 4'050);
    race.not_running(2, 10, 4'000, 3'900);  // the watch had no core either
  }
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[2].at(Loss::kNoCore)), 20 * 4'000e3, 20e3);
  EXPECT_EQ(lost.ranks[2].at(Loss::kStopped), 0);
  EXPECT_TRUE(lost.ranks[2].stops.empty());
  EXPECT_EQ(race.findings(), "no_core 2;");
}

TEST(LostTimeTest, AWorkerThatLosesItsCoreAfterItsReplyIsLateInTheNextExchange) {
  Race race;
  for (int i = 0; i < 20; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 6, .replied = 46});
    race.core_wait(2, 3'900, 0, 3'970);  // counted when it had a core again
    race.step({}, {.dispatched = 1, .arrived = 3'906, .replied = 3'946});
    race.core_wait(2, 20, 0, 3'950);
  }
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[2].at(Loss::kNoCore)), 20 * 3'900e3, 20 * 20e3);
  EXPECT_LE(lost.ranks[2].at(Loss::kLink), 20 * 20'000);
  EXPECT_EQ(race.findings(), "no_core 2;");
}

TEST(LostTimeTest, AReadingTellsOfEveryExchangeSinceTheOneBefore) {
  Race race;
  for (int i = 0; i < 100; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 106, .replied = 146});
    if (i % 5 == 4) race.core_wait(2, 5 * 100, 0, 150);
  }
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[2].at(Loss::kNoCore)), 100 * 100e3, 20 * 20e3);
  EXPECT_LE(lost.ranks[2].at(Loss::kLink), 100 * 5'000);
  EXPECT_EQ(race.findings(), "no_core 2;");
}

TEST(LostTimeTest, AWaitOutsideItsExchangesExcusesNoWorker) {
  Race race;
  for (int i = 0; i < 40; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 6, .replied = 46}, 1'000);  // the coordinator computes for longer
    race.core_wait(2, 60, 0, 900, 500);                                    // while it had nothing to do
    race.step({}, {.dispatched = 1, .arrived = 306, .replied = 346});
  }
  EXPECT_EQ(race.findings(), "slow_link 2;");
}

TEST(LostTimeTest, ALittleLateAndOftenWithoutACoreIsNoSlowLink) {
  Race race;
  for (int i = 0; i < 40; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 56, .replied = 96}, 20, 0, 0);
    race.step({}, {.dispatched = 1, .arrived = 6, .replied = 46}, 1'000);
    race.core_wait(2, 60, 0, 900, 500);
  }
  EXPECT_EQ(race.findings(), "");
}

TEST(LostTimeTest, WhoIsTakenInLastIsNotLastForThat) {
  Race race;
  race.quiet_steps(20);
  for (int i = 0; i < 40; ++i)
    race.step({.arrived = 5, .replied = 345}, {.dispatched = 1, .arrived = 6, .replied = 46}, 20, 0, 6);
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[1].at(Loss::kSlow)), 40 * 300e3, 40 * 10e3) << "taken in first, 300 us late";
  EXPECT_LE(lost.ranks[2].total(), 20 * 2000) << "back for long when it is taken in";
  EXPECT_EQ(race.findings(), "slow_rank 1;");
}

TEST(LostTimeTest, RowsThatStayWithAStoppedCoordinatorAreItsOwnFault) {
  Race race;
  race.quiet_steps(20);
  for (int stop = 0; stop < 4; ++stop) {
    // The first worker's rows were there before the stop, the second one's need the coordinator to be sent.
    race.step({}, {.dispatched = 1, .arrived = 30'006, .replied = 30'046});
    race.not_running(0, 20, 30'020);
    race.quiet_steps(20);
  }
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[0].at(Loss::kStopped)), 4 * 30e6, 4 * 1e5);
  EXPECT_LE(lost.ranks[1].total() + lost.ranks[2].total(), 1'000'000);
  EXPECT_EQ(race.findings(), "stopped 0;");
}

TEST(LostTimeTest, AHiccupOfManyExchangesIsNoHabitEither) {
  test::SmallCapture small(3, 400'000'000);
  uint64_t t = 1000;
  for (uint32_t s = 0; s < 400; ++s) {
    const bool is_hiccup = s >= 100 && s < 104;  // of the way to worker 1
    const uint64_t begin = t;
    for (int16_t layer = 0; layer < 8; ++layer) {
      const uint64_t way = (is_hiccup ? 1'000 : 5) * kUs;
      small.exchange(1, {s, layer}, t, t + way, t + way + 40 * kUs, t + way + 45 * kUs, 8);
      small.exchange(2, {s, layer}, t, t + 5 * kUs, t + 45 * kUs, t + way + 46 * kUs, 8);
      t += way + 50 * kUs;
    }
    small.step(s, Phase::kDecode, begin, t, 1, 1);
  }
  const ReportInput input(small.capture);
  const LostTime lost = find_lost_time(input);
  EXPECT_NEAR(static_cast<double>(lost.ranks[1].at(Loss::kLink)), 32 * 995e3, 32 * 10e3) << "counted";
  EXPECT_TRUE(find_costly_ranks(input, lost).empty()) << "but nobody's fault";
}

TEST(LostTimeTest, OfTwoMicroBatchesOnlyTheWorkIsCharged) {
  // Worker 2 takes 900 us for what worker 1 does in 500, and begins with the second half when it is done with the first.
  test::SmallCapture small(3, 100'000'000);
  uint64_t t = 1000;
  for (uint32_t s = 0; s < 20; ++s) {
    const uint64_t begin = t;
    const auto at = [&](uint64_t us) { return begin + us * kUs; };
    small.exchange(1, {s, 0, 0}, at(0), at(5), at(505), at(510), 8).exchange(2, {s, 0, 0}, at(0), at(5), at(905), at(910), 8);
    small.exchange(1, {s, 0, 1}, at(20), at(506), at(1006), at(1011), 8);
    small.exchange(2, {s, 0, 1}, at(20), at(906), at(1806), at(1811), 8);
    small.span(0, Zone::kWaitCombine, at(30), at(510), 0, 1, {s, 0, 0})
        .span(0, Zone::kWaitCombine, at(511), at(910), 0, 2, {s, 0, 0});
    small.span(0, Zone::kWaitCombine, at(920), at(1011), 0, 1, {s, 0, 1});
    small.span(0, Zone::kWaitCombine, at(1012), at(1811), 0, 2, {s, 0, 1});
    t = at(1820);
    small.step(s, Phase::kPrefill, begin, t, 8, 1);
  }
  const LostTime lost = find_lost_time(ReportInput(small.capture));
  EXPECT_NEAR(static_cast<double>(lost.ranks[2].at(Loss::kSlow)), 20 * 2 * 400e3, 20 * 20e3);
  EXPECT_LE(lost.ranks[2].at(Loss::kLink), 20 * 2000) << "its second half waited for its first, not on the wire";
  EXPECT_GE(lost.waits[0].experts, 1'600'000);
}

TEST(LostTimeTest, ACoordinatorWithoutACoreTakesRepliesInLate) {
  Race race;
  race.quiet_steps(40);
  for (int i = 0; i < 20; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 6, .replied = 46}, 20, 3'000);
    race.core_wait(0, 3'000, kNoLayer);
  }
  const LostTime lost = race.find();
  EXPECT_NEAR(static_cast<double>(lost.ranks[0].at(Loss::kNoCore)), 20 * 3e6, 1e5);
  EXPECT_LE(lost.ranks[1].total() + lost.ranks[2].total(), 100'000);
  EXPECT_EQ(race.findings(), "no_core 0;");
}

TEST(LostTimeTest, AHelperOfTheCoordinatorWithoutACoreCostsOnlyWhatTheSteppingThreadWaited) {
  Race race;
  race.quiet_steps(40);
  for (int i = 0; i < 20; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 6, .replied = 46}, 20, 3'000);
    race.core_wait(0, 1'000, kNoLayer);
    race.helper_core_wait(0, 3'000);
  }
  const LostTime lost = race.find();
  EXPECT_EQ(lost.ranks[0].core_wait_ns, 20 * kMs);
  EXPECT_NEAR(static_cast<double>(lost.ranks[0].at(Loss::kNoCore)), 20e6, 1e5);
}

/// A thread that waits for a core while the worker that it needs still computes loses nothing.
TEST(LostTimeTest, ACoordinatorWithoutACoreLosesNothingWhileItsWorkersCompute) {
  Race race;
  for (int i = 0; i < 20; ++i) {
    race.step({.replied = 3'045}, {.dispatched = 1, .arrived = 6, .replied = 3'046});
    race.core_wait(0, 2'900, kNoLayer);
  }
  // Of its own a step has 20 us before it waits and 20 us behind that.
  EXPECT_LE(race.find().ranks[0].at(Loss::kNoCore), 20 * 45 * 1000);
}

/// Two exchanges of a step may each have been held up, and its counter tells of more than the step.
TEST(LostTimeTest, ACoordinatorLosesNoMoreThanItWaitedForCores) {
  Race race;
  race.quiet_steps(40);
  for (int i = 0; i < 20; ++i) {
    race.step({}, {.dispatched = 1, .arrived = 6, .replied = 46}, 20, 3'000);
    race.core_wait(0, 500'000, kNoLayer);
  }
  const LostTime lost = race.find();
  EXPECT_GT(lost.ranks[0].at(Loss::kNoCore), 0);
  EXPECT_LE(lost.ranks[0].at(Loss::kNoCore), lost.ranks[0].core_wait_ns);
}

/// A counter that is read after a pause between two steps tells of the pause, too.
TEST(LostTimeTest, AStepWaitsForACoreForAsLongAsItLastsAtMost) {
  Race race;
  race.step({}, {.dispatched = 1, .arrived = 6, .replied = 3'046});
  race.core_wait(2, 2'000, 0, 3'050);
  race.core_wait(1, 500'000, kNoLayer);
  const LostTime lost = race.find();
  const StepInfo step = ReportInput(race.small.capture).timeline.steps.at(0);
  EXPECT_EQ(lost.ranks[2].core_wait_ns, 2 * kMs);
  EXPECT_EQ(lost.ranks[1].core_wait_ns, step.end_ns - step.begin_ns);
}

TEST(LostTimeTest, ASlowLinkASlowRankAndUnevenRowsAreToldApart) {
  Race link, slow, rows;
  for (int i = 0; i < 20; ++i) {
    link.step({}, {.dispatched = 1, .arrived = 306, .replied = 346});
    slow.step({}, {.dispatched = 1, .arrived = 6, .replied = 346});
    rows.step({}, {.dispatched = 1, .arrived = 6, .replied = 126, .rows = 24});
  }
  EXPECT_NEAR(static_cast<double>(link.find().ranks[2].at(Loss::kLink)), 20 * 300e3, 20 * 5e3);
  EXPECT_EQ(link.findings(), "slow_link 2;");
  EXPECT_NEAR(static_cast<double>(slow.find().ranks[2].at(Loss::kSlow)), 20 * 300e3, 20 * 5e3);
  EXPECT_EQ(slow.findings(), "slow_rank 2;");
  EXPECT_NEAR(static_cast<double>(rows.find().ranks[2].at(Loss::kMoreRows)), 20 * 80e3, 20 * 3e3);
  EXPECT_EQ(rows.findings(), "uneven_rows 2;");
}

TEST(LostTimeTest, WhoeverTheCoordinatorOutlastsCostsNothing) {
  Race race;
  for (int i = 0; i < 20; ++i) race.step({}, {.dispatched = 1, .arrived = 6, .replied = 346}, 400);
  const LostTime lost = race.find();
  EXPECT_EQ(lost.ranks[1].total() + lost.ranks[2].total(), 0);
  EXPECT_EQ(race.findings(), "");
}

TEST(LostTimeTest, WorkersThatTakeTurnsAreInnocent) {
  Race race;
  for (int i = 0; i < 40; ++i) {
    const Part late{.arrived = 5, .replied = 145}, usual{};
    if (i % 2 == 0) race.step(late, usual);
    if (i % 2 == 1) race.step(usual, late);
  }
  EXPECT_EQ(race.findings(), "");
}

TEST(LostTimeTest, OneLongHiccupIsNoHabit) {
  Race race;
  race.quiet_steps(20);
  race.step({}, {.dispatched = 1, .arrived = 6, .replied = 5'046});
  EXPECT_EQ(race.findings(), "");
}

TEST(LostTimeTest, ClocksThatDifferChangeNothing) {
  const MadeRun run{.world_size = 4, .slow_rank = 2, .slow_factor = 3};
  MadeRun shifted = run;
  shifted.clock_offset_ns = -7654321;
  shifted.clock_drift = 2e-5;
  const LostTime lost = find_lost_time(ReportInput(make_made_capture(run)));
  const LostTime moved = find_lost_time(ReportInput(make_made_capture(shifted)));
  EXPECT_GT(lost.ranks[2].at(Loss::kSlow), 0);
  for (std::size_t r = 0; r < lost.ranks.size(); ++r) {
    EXPECT_NEAR(static_cast<double>(lost.ranks[r].total()), static_cast<double>(moved.ranks[r].total()), 2000);
  }
}

/// Whether findings name `kind` on `rank` alone, as large as `run` is longer than `control`.
void expect_named(const MadeRun& run, const MadeRun& control, const std::string& kind, int32_t rank) {
  const ReportInput planted(make_made_capture(run)), without(make_made_capture(control));
  const double truth_ms = static_cast<double>(total_step_ns(planted.timeline) - total_step_ns(without.timeline)) / 1e6;
  const std::vector<Finding> findings = find_costly_ranks(planted, find_lost_time(planted));
  ASSERT_EQ(findings.size(), 1U) << kind;
  EXPECT_EQ(findings[0].kind, kind);
  EXPECT_EQ(findings[0].rank, rank);
  EXPECT_NEAR(findings[0].saved_ms, truth_ms, 0.1 * truth_ms) << kind;
  EXPECT_TRUE(find_costly_ranks(without, find_lost_time(without)).empty()) << kind;
}

TEST(PlantedCausesTest, AreNamedWithTheTimeThatTheyCost) {
  for (int32_t world_size = 3; world_size <= test::draws(6, 4); ++world_size) {
    for (int64_t rank = 1; rank < world_size; ++rank) {
      MadeRun run{.world_size = world_size, .num_prefill_steps = 6, .num_decode_steps = 20};
      const MadeRun quiet = run;
      run.far_rank = rank;
      run.far_us = 40;
      expect_named(run, quiet, "slow_link", static_cast<int32_t>(rank));
      run = quiet;
      run.slow_rank = rank;
      run.slow_factor = 5;
      expect_named(run, quiet, "slow_rank", static_cast<int32_t>(rank));
    }
  }
}

TEST(StragglerViewTest, CausesAddUpToWhatIsSaved) {
  Race race;
  for (int i = 0; i < 20; ++i) race.step({}, {.dispatched = 1, .arrived = 56, .replied = 346, .rows = 16});
  const ReportInput input(race.small.capture);
  const Table table = make_straggler_view(input);
  ASSERT_EQ(table.rows.size(), 3U) << "the coordinator is a party";
  const std::size_t row = test::row_with(table, {{"rank", int64_t{2}}});
  double sum = 0;
  for (const char* name : {"stopped_us", "no_core_us", "link_us", "more_rows_us", "slow_us", "order_us"})
    sum += test::number(table, row, name);
  EXPECT_NEAR(sum, test::number(table, row, "saved_us"), 0.01);
  EXPECT_EQ(test::number(table, row, "last"), 20);
  EXPECT_DOUBLE_EQ(test::number(table, row, "rows_ratio"), 2);
  EXPECT_EQ(test::text(table, row, "cause"), "slow");
}

}  // namespace
}  // namespace ferry
