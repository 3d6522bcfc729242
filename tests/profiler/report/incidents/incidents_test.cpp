#include "profiler/report/incidents/incidents.h"

#include <gtest/gtest.h>

#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using Parts = std::vector<Incident::Part>;

/// Steps of 100 ns, each from 100 times its number on.
test::SmallCapture steady(uint32_t num_steps) {
  test::SmallCapture small(3, uint64_t{num_steps} * 100);
  for (uint32_t s = 0; s < num_steps; ++s) small.step(s, Phase::kDecode, uint64_t{s} * 100, uint64_t{s} * 100 + 100, 1, 1);
  return small;
}

void change(test::SmallCapture& small, uint64_t at_ns, int32_t rank, WorkerState from, WorkerState to) {
  small.span(0, Zone::kWorkerChange, at_ns, at_ns, static_cast<uint32_t>(to), static_cast<uint32_t>(rank));
  small.capture.info.worker_changes.push_back(
      {.ticks = at_ns, .rank = rank, .from = worker_state_name(from), .to = worker_state_name(to), .reason = "because"});
}

void place(test::SmallCapture& small, uint64_t begin_ns, uint64_t end_ns, PlacementEvent event, uint32_t epoch = 2) {
  small.span(0, Zone::kPlacementChange, begin_ns, end_ns, pack_placement(event, 7), epoch);
}

std::vector<Incident> incidents_of(const test::SmallCapture& small) {
  const ReportInput input(small.capture);
  return find_incidents(input.timeline, find_worker_history(input));
}

TEST(IncidentsTest, ThereAreNoneWhereWorkersOnlyTakeTheirSeatsOrTheBalanceIsOnlyLookedAt) {
  test::SmallCapture small = steady(20);
  EXPECT_TRUE(incidents_of(small).empty());
  change(small, 250, 1, WorkerState::kVacant, WorkerState::kHealthy);
  place(small, 300, 310, PlacementEvent::kLook);
  EXPECT_TRUE(incidents_of(small).empty());
}

TEST(IncidentsTest, ALossLastsUntilOthersHaveTheExperts) {
  test::SmallCapture small = steady(20);
  change(small, 250, 2, WorkerState::kHealthy, WorkerState::kSuspect);
  change(small, 260, 2, WorkerState::kSuspect, WorkerState::kMasked);
  place(small, 400, 410, PlacementEvent::kBegin);
  change(small, 905, 2, WorkerState::kMasked, WorkerState::kGone);
  place(small, 900, 920, PlacementEvent::kSwitch);
  const std::vector<Incident> found = incidents_of(small);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].parts, (Parts{{IncidentCause::kLost, 2}, {IncidentCause::kLate, 2}})) << "the experts moved because of it";
  EXPECT_EQ(found[0].when, (Interval{250, 920}));
  EXPECT_EQ(found[0].first_step, 2U);
  EXPECT_EQ(found[0].last_step, 10U);
  EXPECT_FALSE(found[0].is_open);
}

TEST(IncidentsTest, ADoubtIsMeasuredSinceTheWorkerWasLastHeardOf) {
  test::SmallCapture small = steady(20);
  small.exchange(1, {4, 0}, 405, 410, 420, 430, 1);
  small.exchange(2, {4, 0}, 405, 410, 420, 425, 1);
  change(small, 490, 2, WorkerState::kHealthy, WorkerState::kSuspect);
  change(small, 499, 2, WorkerState::kSuspect, WorkerState::kHealthy);
  EXPECT_EQ(incidents_of(small).at(0).when, (Interval{425, 499}));
  // What was said in steps before does not count: the worker may have had no rows since.
  change(small, 790, 2, WorkerState::kHealthy, WorkerState::kSuspect);
  change(small, 799, 2, WorkerState::kSuspect, WorkerState::kHealthy);
  EXPECT_EQ(incidents_of(small).at(1).when, (Interval{700, 799}));
  // A worker that comes back tells how long it did not run.
  small.span(2, Zone::kNotRunning, 680, 795);
  const std::vector<Incident> found = incidents_of(small);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].when, (Interval{680, 799}));
  EXPECT_EQ(found[1].first_step, 6U);
}

TEST(IncidentsTest, WhatDoesNotTouchTheSameStepIsApart) {
  test::SmallCapture small = steady(30);
  change(small, 250, 1, WorkerState::kHealthy, WorkerState::kSuspect);
  change(small, 450, 1, WorkerState::kSuspect, WorkerState::kHealthy);
  change(small, 520, 2, WorkerState::kHealthy, WorkerState::kLeaving);
  change(small, 810, 2, WorkerState::kLeaving, WorkerState::kGone);
  place(small, 880, 890, PlacementEvent::kBeginForBalance);  // in the step in which rank 2 went
  place(small, 1010, 1020, PlacementEvent::kSwitch);
  place(small, 1500, 1510, PlacementEvent::kBeginForBalance, 3);
  place(small, 1600, 1600, PlacementEvent::kGiveUp, 3);
  change(small, 2000, 3, WorkerState::kGone, WorkerState::kJoining);
  const std::vector<Incident> found = incidents_of(small);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].parts, (Parts{{IncidentCause::kLate, 1}}));
  EXPECT_EQ(found[1].parts, (Parts{{IncidentCause::kLeft, 2}}));
  EXPECT_EQ(found[1].when, (Interval{520, 1020}));
  EXPECT_EQ(found[2].parts, (Parts{{IncidentCause::kMoved, -1}}));
  EXPECT_EQ(found[3].parts, (Parts{{IncidentCause::kJoined, 3}}));
  EXPECT_TRUE(found[3].is_open);
  EXPECT_EQ(found[3].last_step, 30U);
}

TEST(IncidentsTest, WhatBeganBeforeTheCaptureBeginsWithIt) {
  test::SmallCapture small = steady(20);
  change(small, 250, 2, WorkerState::kMasked, WorkerState::kGone);
  place(small, 1220, 1230, PlacementEvent::kSwitch, 9);
  std::vector<Incident> found = incidents_of(small);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].parts, (Parts{{IncidentCause::kLost, 2}}));
  EXPECT_EQ(found[0].when, (Interval{0, 1230}));
  small.capture.info.worker_changes.clear();  // an older version's
  small = steady(20);
  small.span(0, Zone::kWorkerChange, 250, 250, static_cast<uint32_t>(WorkerState::kGone), 2);
  EXPECT_TRUE(incidents_of(small).empty()) << "nobody knows since when";
}

TEST(WorkerHistoryTest, JoinsEventsWithTheirReasons) {
  test::SmallCapture small = steady(20);
  change(small, 250, 2, WorkerState::kHealthy, WorkerState::kSuspect);
  small.capture.info.worker_changes.back().reason = "silent";
  change(small, 350, 2, WorkerState::kSuspect, WorkerState::kHealthy);
  change(small, 450, 2, WorkerState::kHealthy, WorkerState::kSuspect);
  small.capture.info.worker_changes.back().reason = "silent again";
  small.span(1, Zone::kWorkerChange, 460, 460, 1, 1);  // another coordinator's
  small.span(0, Zone::kWorkerChange, 470, 470, 99, 1);
  const ReportInput input(small.capture);
  const std::vector<WorkerEvent> events = find_worker_history(input).events;
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].reason, "silent");
  EXPECT_EQ(events[0].from, WorkerState::kHealthy);
  EXPECT_EQ(events[2].reason, "silent again");
  small.capture.info.worker_changes.clear();
  const ReportInput old(small.capture);
  EXPECT_FALSE(find_worker_history(old).events[0].from);
  EXPECT_EQ(find_worker_history(old).events[1].from, WorkerState::kSuspect);
}

}  // namespace
}  // namespace ferry
