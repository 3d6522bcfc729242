#include "profiler/report/findings/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/report/lost_time/recording_cost.h"
#include "profiler/report/lost_time/waiting.h"
#include "runtime/base/worker_state.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using testing::HasSubstr;

/// A made run whose recording is free, so that only what the test changes is found.
Capture quiet(const MadeRun& run) {
  Capture capture = make_made_capture(run);
  for (RankCapture& rank : capture.ranks) rank.span_cost_ns = 0;
  return capture;
}

std::vector<Finding> find_in(Capture capture) {
  const ReportInput input(std::move(capture));
  return find_problems(input);
}

const Finding* find_kind(const std::vector<Finding>& findings, const std::string& kind) {
  for (const Finding& finding : findings) {
    if (finding.kind == kind) return &finding;
  }
  return nullptr;
}

std::string all_texts(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.kind + ": " + finding.text + "\n";
  return text;
}

TEST(FindingsTest, AQuietRunHasNoneAndSaysSo) {
  for (const int32_t world_size : {1, 2, 3, 4}) {
    const std::vector<Finding> findings = find_in(quiet({.world_size = world_size, .num_decode_steps = 30}));
    ASSERT_EQ(findings.size(), 1U) << all_texts(findings);
    EXPECT_EQ(findings[0].kind, "none");
    EXPECT_EQ(findings[0].severity, Finding::Severity::kInfo);
  }
  Capture empty = make_made_capture({.world_size = 1});
  for (ThreadCapture& thread : empty.ranks[0].threads) thread.records.clear();
  EXPECT_EQ(find_in(empty).front().text, "The capture holds no step: there is nothing to be found.");
}

TEST(FindingsTest, OneStepIsNotCalledSeveral) {
  test::SmallCapture small(1, 5000);
  small.step(0, Phase::kDecode, 1000, 2000, 1, 1);
  EXPECT_EQ(all_texts(find_problems(ReportInput(small.capture))), "none: Nothing stands out in 1 step and 0 requests.\n");
}

TEST(FindingsTest, NamesASlowRankAndWhatItCosts) {
  const std::vector<Finding> findings =
      find_in(quiet({.world_size = 4, .num_prefill_steps = 9, .num_decode_steps = 0, .slow_rank = 2, .slow_factor = 4}));
  const Finding* found = find_kind(findings, "slow_rank");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_EQ(found->severity, Finding::Severity::kProblem);
  EXPECT_EQ(found->table, "straggler");
  EXPECT_EQ(found->rank, 2);
  EXPECT_GT(found->saved_ms, 0);
  EXPECT_THAT(found->text, HasSubstr("Rank 2 (beta) is last in 100 % of the exchanges"));
  EXPECT_THAT(found->text, HasSubstr("ms less"));
}

TEST(FindingsTest, ASlowRankBelowTheClockBoundIsNotAccused) {
  const MadeRun run{.world_size = 4, .num_prefill_steps = 9, .slow_rank = 2, .slow_factor = 4, .clock_bound_ns = 1e6};
  EXPECT_EQ(find_kind(find_in(quiet(run)), "slow_rank"), nullptr);
}

/// Rank 2 has three times the rows of rank 1 in layer 0 of every step, `work` ns for them and the other 300.
test::SmallCapture uneven(uint64_t work) {
  test::SmallCapture small(3, 90'000);
  for (uint32_t s = 0; s < 20; ++s) {
    const uint64_t t = 4000 * s;
    small.step(s, Phase::kDecode, t, t + 3900, 1, 1);
    small.exchange(1, {s, 0}, t + 10, t + 20, t + 320, t + 400, 30, 3000);
    small.exchange(2, {s, 0}, t + 10, t + 20, t + 20 + work, t + 1990, 90, 9000);
  }
  small.capture.info.model.top_k = 2;
  small.capture.info.expert_rank = {1, 1, 1, 1, 2, 2, 2, 2};
  small.capture.info.expert_tokens = {{150, 150, 150, 150, 1350, 150, 150, 150}};
  return small;
}

TEST(FindingsTest, NamesAHotExpertOnlyWhereItsRowsAreWaitedFor) {
  const std::vector<Finding> findings = find_in(uneven(900).capture);
  const Finding* found = find_kind(findings, "hot_expert");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_EQ(found->rank, 2);
  EXPECT_NEAR(found->saved_ms, 20 * 600 / 1e6, 1e-6);
  EXPECT_THAT(found->text, HasSubstr("Expert 4 of layer 0 (rank 2) takes 56.2 %"));
  EXPECT_THAT(found->text, HasSubstr("4.5 times the mean"));
  EXPECT_EQ(find_kind(find_in(uneven(300).capture), "hot_expert"), nullptr) << "nobody waits for its rows";
}

TEST(FindingsTest, HotExpertsOfOneRankExplainItsRowsTogether) {
  test::SmallCapture small = uneven(900);
  small.capture.info.expert_rank = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2};
  small.capture.info.expert_tokens = {{50, 50, 50, 50, 50, 50, 50, 50, 450, 450, 450, 450, 50, 50, 50, 50}};
  const std::vector<Finding> findings = find_in(small.capture);
  const Finding* found = find_kind(findings, "hot_expert");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_EQ(found->rank, 2);
  EXPECT_THAT(found->text, HasSubstr("and 1 more of this rank are as hot"));
}

TEST(FindingsTest, UnevenRowsWithoutAHotExpertAreTheLoadsFault) {
  test::SmallCapture small = uneven(900);
  small.capture.info.expert_tokens = {{150, 150, 150, 150, 450, 450, 450, 450}};
  const std::vector<Finding> findings = find_in(small.capture);
  const Finding* found = find_kind(findings, "uneven_rows");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_THAT(found->text, HasSubstr("3.00 times the other workers' rows"));
  EXPECT_EQ(find_kind(findings, "hot_expert"), nullptr);
}

TEST(FindingsTest, ExposedTimeIsDividedByWhatTheLastWorkerDid) {
  test::SmallCapture small(2, 1'000'000);
  small.step(0, Phase::kDecode, 0, 1'000'000, 1, 1);
  small.exchange(1, {0, 0}, 100'000, 200'000, 500'000, 900'000, 1).span(0, Zone::kWaitCombine, 100'000, 900'000, 0, 1, {0, 0});
  small.span(1, Zone::kNotRunning, 100'000, 200'000, 0);
  const std::vector<Finding> findings = find_in(small.capture);
  const Finding* found = find_kind(findings, "exposed_communication");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_THAT(found->text, HasSubstr("38 % of that while remote experts compute"));
  EXPECT_THAT(found->text, HasSubstr("50 % while rows and replies are on the wire, 12 % while a worker does not run"));
}

/// Six requests of which one runs at a time, each 100 us in two steps, while the others wait.
test::SmallCapture one_at_a_time() {
  test::SmallCapture small(1, 700'000);
  for (uint32_t r = 0; r < 6; ++r) {
    const uint64_t t = 100'000 * r;
    if (r > 0) small.span(0, Zone::kRequestQueue, 1000, t, r, 8);
    for (const uint32_t half : {0U, 1U}) {
      const uint32_t step = 2 * r + half;
      small.step(step, half == 0 ? Phase::kPrefill : Phase::kDecode, t + 50'000 * half, t + 50'000 * half + 49'000, 1, 1);
      small.span(0, Zone::kRunningRequests, t + 50'000 * half, t + 50'000 * half, 1, 0, {step, kNoLayer});
      small.span(0, Zone::kUsedKvBlocks, t + 50'000 * half, t + 50'000 * half, 6, 0, {step, kNoLayer});
    }
  }
  return small;
}

TEST(FindingsTest, NamesWhatRequestsWaitFor) {
  test::SmallCapture small = one_at_a_time();
  small.capture.info.max_running_requests = 1;
  small.capture.info.num_kv_blocks = 100;
  std::vector<Finding> findings = find_in(small.capture);
  const Finding* found = find_kind(findings, "starved");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_EQ(found->severity, Finding::Severity::kProblem);
  EXPECT_THAT(found->text, HasSubstr("5 of 5 requests")) << "the first waits for nothing";
  EXPECT_THAT(found->text, HasSubstr("mostly for slots"));
  EXPECT_THAT(found->text, HasSubstr("1.0 sequences of at most 1 run"));

  small.capture.info.max_running_requests = 16;
  small.capture.info.num_kv_blocks = 10;  // 4 left, a request takes 6
  findings = find_in(small.capture);
  ASSERT_NE(find_kind(findings, "starved"), nullptr);
  EXPECT_THAT(find_kind(findings, "starved")->text, HasSubstr("mostly for KV blocks"));

  small.capture.info.num_kv_blocks = 100;
  findings = find_in(small.capture);
  ASSERT_NE(find_kind(findings, "starved"), nullptr);
  EXPECT_THAT(find_kind(findings, "starved")->text, HasSubstr("mostly for steps"));
}

TEST(FindingsTest, RequestsThatWaitWhileNothingRunsStarve) {
  test::SmallCapture small(1, 1'000'000);
  small.step(0, Phase::kDecode, 100'000, 200'000, 1, 1);
  small.span(0, Zone::kRequestQueue, 300'000, 900'000, 1, 8);
  const std::vector<Finding> findings = find_in(small.capture);
  const Finding* found = find_kind(findings, "starved");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_THAT(found->text, HasSubstr("for 0.6 ms (60 % of the capture) no step runs"));
  EXPECT_THAT(found->text, HasSubstr("mostly for steps"));
}

TEST(FindingsTest, BetweenKeptStepsOfAnArchiveNobodyStarves) {
  test::SmallCapture small(1, 1'000'000);
  small.step(0, Phase::kDecode, 100'000, 200'000, 1, 1);
  small.span(0, Zone::kRequestTokenize, 150'000, 160'000, 1, 8);  // its first step was not kept
  small.step(1, Phase::kDecode, 900'000, 950'000, 1, 1);
  ASSERT_NE(find_kind(find_in(small.capture), "starved"), nullptr) << "if all was recorded";
  small.capture.info.selection = {{"sample", 2}};
  const std::vector<Finding> findings = find_in(small.capture);
  EXPECT_EQ(find_kind(findings, "starved"), nullptr) << all_texts(findings);
}

TEST(FindingsTest, NamesLostRecordsAndMissingRanks) {
  Capture capture = quiet({});
  capture.ranks[1].threads[0].num_lost = capture.ranks[1].threads[0].records.size();
  capture.ranks[2].threads.clear();
  const std::vector<Finding> findings = find_in(std::move(capture));
  const Finding* lost = find_kind(findings, "lost_records");
  ASSERT_NE(lost, nullptr);
  EXPECT_THAT(lost->text, HasSubstr("Rank 1, thread experts lost"));
  EXPECT_THAT(lost->text, HasSubstr("50.0 %"));
  const Finding* missing = find_kind(findings, "missing_rank");
  ASSERT_NE(missing, nullptr);
  EXPECT_THAT(missing->text, HasSubstr("Rank 2"));
}

TEST(FindingsTest, NamesClocksThatContradictTheMessages) {
  Capture capture = quiet({});
  capture.ranks[1].alignment.offset_ns = 500'000;  // every reply of rank 1 seems to be sent after it arrived
  const std::vector<Finding> findings = find_in(std::move(capture));
  const Finding* found = find_kind(findings, "clock");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_EQ(found->severity, Finding::Severity::kProblem);
  EXPECT_THAT(found->text, HasSubstr("28 messages"));
}

TEST(FindingsTest, NamesTheProfilersOwnCost) {
  Capture capture = quiet({});
  capture.ranks[0].span_cost_ns = 400;
  const std::vector<Finding> findings = find_in(std::move(capture));
  const Finding* found = find_kind(findings, "profiler_cost");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_EQ(found->severity, Finding::Severity::kProblem);
  EXPECT_THAT(found->text, HasSubstr("rank 0"));
  EXPECT_THAT(found->text, HasSubstr("400.0 ns"));
}

TEST(FindingsTest, CountsAReadingOfTheClockThatSpansShareOnce) {
  test::SmallCapture small(1, 10'000);
  small.step(1, Phase::kDecode, 1000, 9000, 1, 1);  // both moments are its own
  small.span(0, Zone::kInputNorm, 2000, 3000, 1);
  small.span(0, Zone::kRouter, 3000, 4000, 1);  // begins where the norm ends
  RankCapture& rank = small.capture.ranks[0];
  rank.span_cost_ns = 50;
  rank.chained_span_cost_ns = 30;  // so a reading takes 20 ns, and the rest 10 ns
  const ReportInput input(small.capture);
  const RecordingCost cost = find_recording_cost(input);
  EXPECT_EQ(cost.records, 3);
  EXPECT_DOUBLE_EQ(cost.span_cost_ns, (5 * 20 + 3 * 10) / 3.0);
  EXPECT_DOUBLE_EQ(cost.share, (5 * 20 + 3 * 10) / 8000.0);
}

TEST(FindingsTest, WhatWouldSaveMostIsFirstAndSeverityDecidesAmongEquals) {
  std::vector<Finding> findings = {{.severity = Finding::Severity::kInfo, .kind = "untold"},
                                   {.severity = Finding::Severity::kProblem, .kind = "small", .saved_ms = 66},
                                   {.severity = Finding::Severity::kProblem, .kind = "untold_problem"},
                                   {.severity = Finding::Severity::kNotice, .kind = "action", .saved_ms = 5},
                                   {.severity = Finding::Severity::kNotice, .kind = "stop", .saved_ms = 1000}};
  findings[3].actions = {{.kind = "a", .saved_ms = 70}, {.kind = "b", .saved_ms = 300}};
  for (const char* kind : {"missing_rank", "clock", "lost_records"}) {  // these put all else in doubt
    findings.push_back({.severity = Finding::Severity::kProblem, .kind = kind});
  }
  sort_findings(findings);
  std::string kinds;
  for (const Finding& finding : findings) kinds += finding.kind + ";";
  EXPECT_EQ(kinds, "missing_rank;clock;lost_records;stop;action;small;untold_problem;untold;");
}

TEST(FindingsTest, WorstFirst) {
  Capture capture = quiet({.world_size = 4, .num_prefill_steps = 9, .slow_rank = 1, .slow_factor = 6});
  capture.ranks[0].span_cost_ns = 20;  // a notice
  const std::vector<Finding> findings = find_in(std::move(capture));
  ASSERT_GE(findings.size(), 2U) << all_texts(findings);
  for (std::size_t i = 1; i < findings.size(); ++i) EXPECT_GE(findings[i - 1].saved_ms, findings[i].saved_ms);
  EXPECT_EQ(find_kind(findings, "none"), nullptr);
}

TEST(FindingsTest, TellsOfADeviceThatTheHostKeepsWaiting) {
  for (const bool waits : {false, true}) {
    test::SmallCapture small(1, 10'000);
    small.step(7, Phase::kDecode, 1000, 9000, 1, 1);
    small.span(0, Zone::kAdd, 1000, 4000, 1, 0, {7, 0});
    small.ran(0, Zone::kAdd, waits ? 4000 : 1500, 9000, 1, {7, 0});
    const std::vector<Finding> findings = find_in(std::move(small.capture));
    const Finding* found = find_kind(findings, "idle_device");
    ASSERT_EQ(found != nullptr, waits) << all_texts(findings);
    if (!waits) continue;
    EXPECT_EQ(found->severity, Finding::Severity::kNotice);
    EXPECT_EQ(found->table, "device");
    EXPECT_THAT(found->text, HasSubstr("nothing to do for 38 % of its steps, 3.0 us a step"));
  }
}

/// Twenty steps of 100 ns, but for the tenth, in which rank 2 comes to stand otherwise: it takes 10 us.
Capture with_change(WorkerState state) {
  test::SmallCapture small(3, 20'000);
  uint64_t begin = 100;
  for (uint32_t s = 0; s < 20; ++s) {
    const uint64_t end = begin + (s == 9 ? 10'000 : 100);
    small.step(s, Phase::kDecode, begin, end, 1, 1);
    if (s == 9) {
      small.span(0, Zone::kWorkerChange, begin + 50, begin + 50, static_cast<uint32_t>(state), 2, {s, 0});
      small.span(0, Zone::kCoveredRows, begin + 60, begin + 60, 7, 1, {s, 0});
      small.span(0, Zone::kCoveredRows, begin + 70, begin + 8070, 3, 0, {s, 0});
    }
    begin = end;
  }
  return small.capture;
}

TEST(FindingsTest, NamesAWorkerThatWasLostAndWhatItCost) {
  const std::vector<Finding> findings = find_in(with_change(WorkerState::kMasked));
  const Finding* found = find_kind(findings, "worker_lost");
  ASSERT_NE(found, nullptr) << all_texts(findings);
  EXPECT_EQ(found->severity, Finding::Severity::kProblem);
  EXPECT_EQ(found->table, "incident");
  EXPECT_THAT(found->text,
              HasSubstr("Rank 2 was lost (steps 9 to 19, 0.00 s, not over yet): 1 step took 0.01 ± 0.00 ms longer than usual"));
  EXPECT_THAT(found->text, HasSubstr("(0.01 computing 3 rows here)"));
  EXPECT_NE(find_kind(find_in(with_change(WorkerState::kSuspect)), "worker_late"), nullptr);
  EXPECT_EQ(find_kind(find_in(with_change(WorkerState::kHealthy)), "worker_late"), nullptr) << "it only came";
}

}  // namespace
}  // namespace ferry
