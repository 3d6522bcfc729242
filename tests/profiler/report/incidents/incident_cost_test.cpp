#include "profiler/report/incidents/incident_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "profiler/report/findings/findings.h"
#include "profiler/report/findings/rank_findings.h"
#include "profiler/report/findings/worker_findings.h"
#include "profiler/report/incidents/like_steps.h"
#include "profiler/report/views/views.h"
#include "tests/support/small_capture.h"

// Captures in which every cost is known.

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kUsualStep = 10'000'000;  // ns of a step
constexpr uint64_t kMillisecond = 1'000'000;

/// Steps one after another, with what happens in them.
class IncidentRun {
 public:
  IncidentRun() : small_(4, 0) {}

  /// A decode step of `sequences`; returns when it begins.
  uint64_t step(uint64_t length_ns = kUsualStep, uint32_t sequences = 8) {
    const uint64_t begin = now_;
    small_.step(number_++, Phase::kDecode, begin, begin + length_ns, sequences, sequences);
    now_ = begin + length_ns;
    return begin;
  }
  void steps(int count, uint64_t length_ns = kUsualStep, uint32_t sequences = 8) {
    for (int i = 0; i < count; ++i) step(length_ns, sequences);
  }
  /// Steps that differ as a real run's do.
  void uneven_steps(int count, uint64_t length_ns = kUsualStep) {
    for (int i = 0; i < count; ++i) step(length_ns + static_cast<uint64_t>((i * 7) % 11) * 20'000);
  }
  test::SmallCapture::Where here(int16_t layer) const { return {number_ - 1, layer, 0}; }
  void change(uint64_t at_ns, int32_t rank, WorkerState to, int16_t layer = kNoLayer) {
    small_.span(0, Zone::kWorkerChange, at_ns, at_ns, static_cast<uint32_t>(to), static_cast<uint32_t>(rank), here(layer));
  }
  void place(uint64_t begin_ns, uint64_t end_ns, PlacementEvent event, int64_t experts) {
    small_.span(0, Zone::kPlacementChange, begin_ns, end_ns, pack_placement(event, experts), 2, here(kNoLayer));
  }
  void wait(uint64_t begin_ns, uint64_t end_ns, uint32_t peer, int16_t layer) {
    small_.span(0, Zone::kWaitCombine, begin_ns, end_ns, 0, peer, here(layer));
  }
  void stop(uint64_t begin_ns, uint64_t end_ns, int32_t rank) { small_.span(rank, Zone::kNotRunning, begin_ns, end_ns); }
  void cover(uint64_t begin_ns, uint64_t end_ns, uint32_t rows, uint32_t peer, int16_t layer) {
    small_.span(0, Zone::kCoveredRows, begin_ns, end_ns, rows, peer, here(layer));
  }
  void read(uint64_t begin_ns, uint64_t end_ns, uint32_t experts, int16_t layer) {
    small_.span(0, Zone::kReadExperts, begin_ns, end_ns, experts, 0, here(layer));
  }

  Capture capture() const {
    Capture capture = small_.capture;
    capture.info.selection = selection_;
    for (RankCapture& rank : capture.ranks) rank.end = now_;
    return capture;
  }
  IncidentCost cost(std::size_t idx = 0) const {
    const ReportInput input(capture());
    const WorkerHistory history = find_worker_history(input);
    return find_incident_costs(input, history, find_incidents(input.timeline, history)).at(idx);
  }
  void keep_for(const std::string& why) { ++selection_[why]; }
  std::vector<Finding> findings() const { return find_worker_changes(ReportInput(capture())).findings; }

 private:
  test::SmallCapture small_;
  uint64_t now_ = 0;
  uint32_t number_ = 0;
  std::map<std::string, int64_t> selection_;
};

/// Rank 2 is waited for for 12 ms and lost; 5 rows go to rank 1 (4 ms), 9 are computed here (15 ms, of which 11 for reading
/// 6 experts); then 40 steps are 4 % longer until a switch of 1 ms; after that steps are 2 % longer.
IncidentRun death() {
  IncidentRun run;
  run.steps(100);
  const uint64_t at = run.step(kUsualStep + 31 * kMillisecond);
  run.wait(at + kMillisecond, at + 2 * kMillisecond, 1, 3);  // the usual wait for another
  run.wait(at + 2 * kMillisecond, at + 14 * kMillisecond, 2, 3);
  run.change(at + 14 * kMillisecond, 2, WorkerState::kMasked, 3);
  run.cover(at + 14 * kMillisecond, at + 14 * kMillisecond, 5, 1, 3);
  run.cover(at + 14 * kMillisecond, at + 29 * kMillisecond, 9, 0, 3);
  run.read(at + 15 * kMillisecond, at + 26 * kMillisecond, 6, 3);
  run.wait(at + 29 * kMillisecond, at + 33 * kMillisecond, 1, 3);
  run.wait(at + 34 * kMillisecond, at + 35 * kMillisecond, 1, 4);
  run.place(at + 40 * kMillisecond, at + 40 * kMillisecond, PlacementEvent::kBegin, 64);
  run.uneven_steps(40, kUsualStep + kUsualStep / 25);
  const uint64_t last = run.step(kUsualStep + kMillisecond);
  run.place(last, last + kMillisecond, PlacementEvent::kSwitch, 64);
  run.change(last + kMillisecond / 2, 2, WorkerState::kGone);
  run.steps(100, kUsualStep + kUsualStep / 50);
  return run;
}

TEST(IncidentCostTest, OneOtherStepIsToldAsOne) {
  IncidentRun run;
  run.steps(100);
  const uint64_t at = run.step(kUsualStep + 30 * kMillisecond);
  run.wait(at + kMillisecond, at + 31 * kMillisecond, 2, 3);
  run.change(at + 31 * kMillisecond, 2, WorkerState::kSuspect, 3);
  const uint64_t next = run.step();
  run.change(next + kMillisecond, 2, WorkerState::kHealthy);
  run.steps(50);
  const std::vector<Finding> findings = run.findings();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].text, HasSubstr("; the other step was neither slower nor faster"));
}

/// Rank 2 does not run for 29 of the 30 ms that it is waited for; where it is stopped once more, nobody doubts it.
TEST(IncidentCostTest, AWaitForAWorkerThatDidNotRunIsToldOnce) {
  IncidentRun run;
  run.steps(40);
  const uint64_t at = run.step(kUsualStep + 30 * kMillisecond);
  run.stop(at + 2 * kMillisecond, at + 31 * kMillisecond, 2);
  run.wait(at + kMillisecond, at + 31 * kMillisecond, 2, 3);
  run.change(at + 31 * kMillisecond, 2, WorkerState::kSuspect, 3);
  const uint64_t next = run.step();
  run.change(next + kMillisecond, 2, WorkerState::kHealthy);
  run.steps(20);
  const ReportInput input(run.capture());
  EXPECT_EQ(find_lost_time(input).ranks.at(2).at(Loss::kStopped), 29 * kMillisecond);
  const auto of_kind = [&](const std::string& kind, const std::vector<Finding>& findings) {
    std::vector<Finding> found;
    std::ranges::copy_if(findings, std::back_inserter(found), [&](const Finding& finding) { return finding.kind == kind; });
    return found;
  };
  EXPECT_EQ(of_kind("stopped", find_costly_ranks(input, find_lost_time(input))).size(), 1U) << "were there no incident";
  const std::vector<Finding> findings = find_problems(input);
  EXPECT_TRUE(of_kind("stopped", findings).empty());
  const std::vector<Finding> late = of_kind("worker_late", findings);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_DOUBLE_EQ(late[0].saved_ms, 30);
  EXPECT_THAT(late[0].text, HasSubstr(" Rank 2 did not run at all for 29.0 ms of that: it was stopped by a signal"));
}

TEST(IncidentCostTest, AStopInKeptStepsIsToldWhereNoIncidentCounts) {
  IncidentRun run;
  run.keep_for("stopped");
  const uint64_t at = run.step(kUsualStep + 30 * kMillisecond);
  run.stop(at + 2 * kMillisecond, at + 31 * kMillisecond, 2);
  run.wait(at + kMillisecond, at + 31 * kMillisecond, 2, 3);
  run.change(at + 31 * kMillisecond, 2, WorkerState::kSuspect, 3);
  const std::vector<Finding> findings = find_problems(ReportInput(run.capture()));
  EXPECT_EQ(findings.front().kind, "stopped");
  EXPECT_DOUBLE_EQ(findings.front().saved_ms, 29);
}

TEST(IncidentCostTest, DividesWhatADeathCost) {
  const IncidentCost cost = death().cost();
  EXPECT_EQ(cost.struck, 2);
  EXPECT_EQ(cost.struck_compared, 2);
  EXPECT_EQ(cost.struck_ns, 32 * kMillisecond);
  EXPECT_EQ(cost.struck_noise_ns, 0);
  EXPECT_EQ(cost.part(CostPart::kWaited), 12 * kMillisecond);
  EXPECT_EQ(cost.part(CostPart::kResent), 4 * kMillisecond);
  EXPECT_EQ(cost.part(CostPart::kRead), 11 * kMillisecond);
  EXPECT_EQ(cost.part(CostPart::kComputed), 4 * kMillisecond);
  EXPECT_EQ(cost.part(CostPart::kPlacement), kMillisecond);
  EXPECT_EQ(cost.rest_ns(), 0);
  EXPECT_EQ(cost.rows_by_workers, 5);
  EXPECT_EQ(cost.rows_by_coordinator, 9);
  EXPECT_EQ(cost.experts_read, 6);
  EXPECT_EQ(cost.experts_moved, 64);
  EXPECT_TRUE(cost.has_switched);
  EXPECT_EQ(cost.meanwhile.steps, 40);
  EXPECT_EQ(cost.meanwhile.compared, 40);
  EXPECT_NEAR(cost.meanwhile.usually_more_ns, 40 * (0.4 + 0.1) * kMillisecond, 1)
      << "the uneven steps' median lies 0.1 ms above the least";
  EXPECT_TRUE(cost.meanwhile.is_told);
  EXPECT_NEAR(cost.after.share(), 0.02, 1e-9);
  EXPECT_TRUE(cost.after.is_told);
  EXPECT_NEAR(cost.meanwhile.more_ns, 20.04 * kMillisecond, 1) << "and their mean a little more";
  EXPECT_NEAR(cost.total_ns(), 52.04 * kMillisecond, 1);
}

TEST(IncidentCostTest, SaysItInOneLine) {
  const std::vector<Finding> findings = death().findings();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "worker_lost");
  EXPECT_EQ(findings[0].severity, Finding::Severity::kProblem);
  EXPECT_NEAR(findings[0].saved_ms, 52.04, 1e-6) << "findings are sorted by it";
  EXPECT_EQ(findings[0].text,
            "Rank 2 was lost (steps 100 to 141, 0.45 s): 2 steps took 32.00 ± 0.00 ms longer than usual in all (12.00 waiting "
            "for it, 4.00 for 5 rows asked of others, 11.00 reading 6 experts, 4.00 computing 9 rows here, 1.00 placing "
            "experts); the other 40 steps were 5.0 % slower until 64 experts were read elsewhere; together that is +52.04 ± "
            "0.00 ms; afterwards steps are 2.0 % slower.");
}

TEST(IncidentCostTest, StepsThatTakeManyTimesAsLongAreNoPercentage) {
  IncidentRun run;
  run.steps(100);
  const uint64_t at = run.step();
  run.change(at + kMillisecond, 2, WorkerState::kMasked, 3);
  run.steps(40, 26 * kUsualStep);
  const uint64_t last = run.step();
  run.change(last + kMillisecond, 2, WorkerState::kGone);
  run.steps(100);
  const std::vector<Finding> findings = run.findings();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].text, HasSubstr("the other 41 steps were 26 × as slow"));
}

TEST(IncidentCostTest, TablesHaveTheSameFigures) {
  const ReportInput input(death().capture());
  const Table incidents = make_incident_view(input);
  ASSERT_EQ(incidents.rows.size(), 1U);
  EXPECT_EQ(test::text(incidents, 0, "what"), "rank 2 lost");
  EXPECT_EQ(test::ns(incidents, 0, "cost_us"), int64_t{52'040} * 1'000);
  EXPECT_EQ(test::ns(incidents, 0, "struck_us"), int64_t{32} * 1'000'000);
  EXPECT_EQ(test::ns(incidents, 0, "noise_us"), 0);
  EXPECT_EQ(test::ns(incidents, 0, "waited_us"), int64_t{12} * 1'000'000);
  EXPECT_EQ(test::number(incidents, 0, "first_step"), 100);
  EXPECT_EQ(test::number(incidents, 0, "last_step"), 141);
  EXPECT_NEAR(test::number(incidents, 0, "after_percent"), 2, 1e-9);
  const Table changes = make_worker_view(input);
  ASSERT_EQ(changes.rows.size(), 4U);
  EXPECT_EQ(test::text(changes, 0, "to"), "masked");
  EXPECT_EQ(test::text(changes, 1, "to"), "told");
  EXPECT_EQ(test::text(changes, 2, "to"), "switched") << "by its begin";
  EXPECT_EQ(test::text(changes, 3, "from"), "masked");
  for (std::size_t row = 0; row < 4; ++row) EXPECT_EQ(test::number(changes, row, "incident"), 1);
}

TEST(IncidentCostTest, ADoubtedWorkerCostsTheWaitAndTheSecondAsking) {
  IncidentRun run;
  run.uneven_steps(110);
  const uint64_t at = run.step(kUsualStep + 53 * kMillisecond);
  run.wait(at + kMillisecond, at + 51 * kMillisecond, 3, 0);
  run.change(at + 51 * kMillisecond, 3, WorkerState::kSuspect, 0);
  run.cover(at + 51 * kMillisecond, at + 51 * kMillisecond, 8, 1, 0);
  run.wait(at + 51 * kMillisecond, at + 54 * kMillisecond, 1, 0);
  run.uneven_steps(20);
  const uint64_t last = run.step();
  run.change(last + 10, 3, WorkerState::kHealthy);
  run.uneven_steps(110);
  const IncidentCost cost = run.cost();
  EXPECT_EQ(cost.part(CostPart::kWaited), 50 * kMillisecond);
  EXPECT_EQ(cost.part(CostPart::kResent), 3 * kMillisecond);
  EXPECT_EQ(cost.struck, 1);
  EXPECT_NEAR(cost.struck_ns, 53.0 * kMillisecond, 0.2 * kMillisecond);
  EXPECT_GT(cost.struck_noise_ns, 0);
  EXPECT_EQ(cost.meanwhile.steps, 21);
  EXPECT_FALSE(cost.meanwhile.is_told);
  EXPECT_FALSE(cost.after.is_told);
  const Finding finding = run.findings().at(0);
  EXPECT_EQ(finding.kind, "worker_late");
  EXPECT_THAT(finding.text, HasSubstr("Rank 3 was late and suspected (steps 110 to 131, "));
  EXPECT_THAT(finding.text, HasSubstr("(50.00 waiting for it, 3.00 for 8 rows asked of others)"));
  EXPECT_THAT(finding.text, HasSubstr("the other 21 steps were neither slower nor faster, as far as can be told; together"));
  EXPECT_THAT(finding.text, HasSubstr("; afterwards steps are as fast as before."));
}

TEST(IncidentCostTest, MovesForBalanceAreComparedWithBeforeAndAfter) {
  IncidentRun run;
  run.steps(100);
  const uint64_t begin = run.step(kUsualStep + kUsualStep / 50);
  run.place(begin, begin + kMillisecond / 5, PlacementEvent::kBeginForBalance, 12);
  run.steps(70, kUsualStep + kUsualStep / 50);
  const uint64_t end = run.step();
  run.place(end, end + kMillisecond / 10, PlacementEvent::kSwitch, 12);
  run.steps(100, kUsualStep - kUsualStep / 32);
  const Finding finding = run.findings().at(0);
  EXPECT_EQ(finding.kind, "experts_moved");
  EXPECT_EQ(finding.severity, Finding::Severity::kNotice);
  EXPECT_EQ(finding.text,
            "Experts moved for balance (steps 100 to 171, 0.72 s): 2 steps took 0.20 ± 0.00 ms longer than usual in all (0.30 "
            "placing experts); the other 70 steps were 2.0 % slower until 12 experts were read elsewhere; together that is "
            "+14.20 ± 0.00 ms; afterwards steps are 3.1 % faster.");
}

TEST(IncidentCostTest, OtherWorkThatComesAndGoesSetsNothingApart) {
  for (const bool is_other_work : {false, true}) {
    IncidentRun run;
    for (int i = 0; i < 4; ++i) run.steps(50, is_other_work && i == 1 ? kUsualStep * 3 / 2 : kUsualStep);
    const uint64_t at = run.step();
    run.change(at, 1, WorkerState::kSuspect);
    run.change(at + 10, 1, WorkerState::kHealthy);
    run.steps(200, kUsualStep * 5 / 4);
    EXPECT_NEAR(run.cost().after.share(), 0.25, 1e-9);
    EXPECT_EQ(run.cost().after.is_told, !is_other_work);
  }
}

TEST(IncidentCostTest, WhatCannotBeComparedIsNotTold) {
  IncidentRun run;
  run.steps(LikeSteps::kFewest - 1);
  const uint64_t at = run.step(50 * kMillisecond);
  run.change(at + 10, 2, WorkerState::kMasked);
  run.steps(5);
  EXPECT_EQ(run.cost().struck_compared, 0);
  EXPECT_EQ(run.cost().total_ns(), 0);
  EXPECT_THAT(run.findings().at(0).text,
              HasSubstr("not over yet): what that cost cannot be told, since too few steps like its 6 lie outside"));
  const ReportInput input(run.capture());
  EXPECT_TRUE(test::is_empty(make_incident_view(input), 0, "cost_us"));
  IncidentRun one_more;
  one_more.steps(LikeSteps::kFewest);
  const uint64_t then = one_more.step(50 * kMillisecond);
  one_more.change(then + 10, 2, WorkerState::kMasked);
  one_more.steps(5, kUsualStep, 30);  // of another size
  EXPECT_EQ(one_more.cost().struck_compared, 1);
  EXPECT_THAT(one_more.findings().at(0).text,
              HasSubstr("1 step took 40.00 ± 0.00 ms longer than usual in all (40.00 otherwise). Of 5 of its 6 steps it"));
}

TEST(IncidentCostTest, AmongKeptStepsOfAnArchiveItIsNotTold) {
  IncidentRun run = death();
  EXPECT_THAT(run.findings().at(0).text, HasSubstr("than usual"));
  run.keep_for("worker_change");
  const IncidentCost cost = run.cost();
  EXPECT_EQ(cost.struck, 2);
  EXPECT_EQ(cost.struck_compared, 0);
  EXPECT_EQ(cost.total_ns(), 0);
  EXPECT_EQ(cost.after.compared, 0);
  const std::string text = run.findings().at(0).text;
  EXPECT_TRUE(text.ends_with(" s).")) << text;
}

TEST(IncidentCostTest, StepsAreComparedWithThoseOfTheirSizeOnly) {
  IncidentRun run;
  run.steps(100, kUsualStep, 8);
  run.steps(100, 3 * kUsualStep, 24);
  const uint64_t at = run.step(3 * kUsualStep + 5 * kMillisecond, 24);
  run.change(at + 10, 2, WorkerState::kSuspect);
  const uint64_t next = run.step(kUsualStep + 2 * kMillisecond, 8);
  run.cover(next + 10, next + 20, 4, 0, 0);
  const uint64_t last = run.step();
  run.change(last, 2, WorkerState::kHealthy);
  EXPECT_EQ(run.cost().struck, 2);
  EXPECT_EQ(run.cost().struck_ns, 7 * kMillisecond);
}

TEST(IncidentCostTest, EachIncidentIsComparedWithTheStepsJustBeforeIt) {
  IncidentRun run;
  run.steps(100);
  uint64_t at = run.step(kUsualStep + 6 * kMillisecond);
  run.change(at + 10, 1, WorkerState::kSuspect);
  run.change(at + 20, 1, WorkerState::kHealthy);
  run.steps(100, 2 * kUsualStep);
  at = run.step(2 * kUsualStep + 7 * kMillisecond);
  run.change(at + 10, 1, WorkerState::kSuspect);
  run.change(at + 20, 1, WorkerState::kHealthy);
  EXPECT_EQ(run.cost(0).struck_ns, 6 * kMillisecond);
  EXPECT_NEAR(run.cost(0).after.share(), 1, 1e-9);
  EXPECT_EQ(run.cost(1).struck_ns, 7 * kMillisecond);
}

TEST(IncidentCostTest, RowsThatTheCoordinatorComputesAnywayAreNoCost) {
  IncidentRun run;  // alone at first: then a worker joins
  const auto alone = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const uint64_t at = run.step();
      run.cover(at + 10, at + 5 * kMillisecond, 8, 0, 0);
    }
  };
  alone(30);
  const uint64_t at = run.step();
  run.change(at, 1, WorkerState::kJoining);
  run.place(at, at, PlacementEvent::kBegin, 64);
  run.cover(at + 10, at + 5 * kMillisecond, 8, 0, 0);
  alone(20);
  const uint64_t last = run.step(kUsualStep + kMillisecond);
  run.place(last, last + kMillisecond, PlacementEvent::kSwitch, 64);
  run.change(last + 10, 1, WorkerState::kHealthy);
  run.steps(100, kUsualStep / 2);
  const IncidentCost cost = run.cost();
  EXPECT_EQ(cost.struck, 2);
  EXPECT_EQ(cost.struck_ns, kMillisecond);
  EXPECT_EQ(cost.part(CostPart::kComputed), 0);
  EXPECT_EQ(cost.rows_by_coordinator, 0);
  EXPECT_NEAR(cost.after.share(), -0.5, 1e-9);
  EXPECT_EQ(run.findings().at(0).kind, "worker_joined");
}

TEST(IncidentCostTest, WaitsOfOtherDispatchesAreTheUsualOnes) {
  IncidentRun run;
  run.steps(100);
  const uint64_t at = run.step(kUsualStep + kMillisecond);
  run.wait(at, at + 2 * kMillisecond, 2, 0);  // answered
  run.change(at + 3 * kMillisecond, 2, WorkerState::kMasked, 1);
  EXPECT_EQ(run.cost().part(CostPart::kWaited), 0);
}

TEST(IncidentCostTest, AQuietCaptureHasNeitherTablesNorFindings) {
  IncidentRun run;
  run.uneven_steps(200);
  EXPECT_TRUE(run.findings().empty());
  const ReportInput input(run.capture());
  for (const Table& table : make_views(input)) EXPECT_THAT(table.id, Not(testing::AnyOf("incident", "worker_change")));
  EXPECT_TRUE(make_incident_view(input).rows.empty());
}

TEST(IncidentCostTest, OfManyIncidentsTheWorstAreNamed) {
  IncidentRun run;
  for (int i = 0; i < 20; ++i) {
    run.steps(10);
    const uint64_t at = run.step(kUsualStep + static_cast<uint64_t>(i) * kMillisecond);
    run.change(at + 10, 1, WorkerState::kSuspect);
    run.change(at + 20, 1, WorkerState::kHealthy);
  }
  const std::vector<Finding> findings = run.findings();
  ASSERT_EQ(findings.size(), 13U);
  EXPECT_THAT(findings[0].text, HasSubstr("1 step took 8.00 ± 0.00 ms longer"));
  EXPECT_EQ(findings.back().kind, "more_incidents");
  EXPECT_THAT(findings.back().text, HasSubstr("in doubt 20 times"));
}

}  // namespace
}  // namespace ferry
