#include "runtime/actions/advise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "profiler/report/findings/action_text.h"
#include "profiler/report/findings/findings.h"
#include "runtime/actions/draft_costs.h"
#include "runtime/actions/plan_replay.h"
#include "runtime/actions/proposals.h"
#include "tests/runtime/actions/replay_fixture.h"
#include "tests/support/draws.h"

namespace ferry {
namespace {

using test::KnownCapture;
using test::KnownRun;

const Action* find_action(const std::vector<Finding>& findings, const std::string& kind) {
  for (const Finding& finding : findings)
    for (const Action& action : finding.actions)
      if (action.kind == kind) return &action;
  return nullptr;
}

std::string all_actions(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += finding.kind + ": " + finding.text + "\n";
    for (const Action& action : finding.actions) text += "  " + action_text(action) + " " + action.assumes + "\n";
  }
  return text;
}

std::vector<Finding> advise(Capture capture) {
  const ReportInput input(std::move(capture));
  return find_and_advise(input);
}

TEST(AdviseTest, AQuietRunGetsNoAdvice) {
  for (const int32_t workers : {0, 1, 2, 4}) {
    for (int64_t wiggle = 0; wiggle <= 30; wiggle += test::draws(10, 30)) {
      KnownCapture run({.num_workers = workers, .link_us = 5, .wiggle_us = wiggle});
      for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 8, 8);
      const std::vector<Finding> findings = advise(run.take());
      for (const Finding& finding : findings) EXPECT_TRUE(finding.actions.empty()) << workers << '\n' << all_actions(findings);
    }
  }
}

TEST(AdviseTest, CopiesAreWorthWhatAnEvenShareIs) {
  KnownCapture run({.num_workers = 4, .expert_us = 40, .expert_row_us = 10, .link_us = 5, .hot_worker = 1});
  double took = 0;
  for (int i = 0; i < 200; ++i) took += run.step(Phase::kDecode, 8, 8);
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "redundancy");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  EXPECT_EQ(action->option, "--redundancy");
  EXPECT_EQ(action->metric, "decode tokens/s");
  EXPECT_NEAR(action->before, 200 * 8 / (took * 1e-6), 1e-3 * action->before);
  EXPECT_GT(action->after, action->before);
}

TEST(AdviseTest, NoPlanIsMadeOfAGpu) {
  KnownCapture run({.num_workers = 4, .expert_us = 40, .expert_row_us = 10, .link_us = 5, .hot_worker = 1});
  for (int i = 0; i < 200; ++i) run.step(Phase::kDecode, 8, 8);
  run.rank(0).device.name = "some GPU";
  const std::vector<Finding> findings = advise(run.take());
  for (const Finding& finding : findings) EXPECT_TRUE(finding.actions.empty()) << all_actions(findings);
}

TEST(AdviseTest, ASlowWorkerIsLeftOut) {
  KnownCapture run({.num_workers = 3, .link_us = 5, .slow = {1, 8, 1}});
  for (int i = 0; i < 200; ++i) run.step(Phase::kDecode, 40, 40);
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "leave_out");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  EXPECT_EQ(action->from, "4");
  EXPECT_EQ(action->to, "3");
  EXPECT_EQ(action->command, "launch/mpirun.sh -np 3 build/ferry serve --model m");
  // Two workers then have eight experts each of which 80 rows touch all: 8 * 20 + 80 / 2 * 2 us, behind 100 + 400 + 30 + 5.
  const double after = 100 + 400 + 30 + 5 + 8 * 20 + 40 * 2;
  EXPECT_NEAR(1e6 * 40 / action->after, after, 0.12 * after) << all_actions(findings);
}

TEST(AdviseTest, ASlowWorkerThatAlsoWaitsForCoresIsLeftOutOnce) {
  KnownCapture run({.num_workers = 3, .link_us = 5, .slow = {1, 8, 1}});
  for (int i = 0; i < 200; ++i) run.step(Phase::kDecode, 40, 40);
  const ReportInput input(run.take());
  const std::vector<Finding> problems = find_problems(input);
  const auto slow = std::ranges::find(problems, "slow_rank", &Finding::kind);
  ASSERT_NE(slow, problems.end());
  std::vector<Finding> findings = {*slow, *slow};
  findings[0].kind = "no_core";
  std::vector<Proposal> proposals;
  propose_experts(CaptureReplay(input), findings, proposals);
  std::erase_if(proposals, [](const Proposal& proposal) { return proposal.action.kind != "leave_out"; });
  ASSERT_EQ(proposals.size(), 1U);
  EXPECT_EQ(proposals[0].answers, std::vector<std::string>{"slow_rank"}) << "what explains most of it";
}

/// 2 cores, of which one works.
TEST(AdviseTest, ThreadsThatAreMissingAreNamed) {
  KnownCapture run({.num_workers = 0});
  for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 8, 8);
  run.rank(0).cores = "0-1";
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "threads");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  EXPECT_EQ(action->to, "2");
  const double all = 100 + 80 + 30 + 16 * 20 + 16 * 2;  // three operators, each handed to both threads in 2 us
  EXPECT_NEAR(action->after / action->before, all / (all * (0.05 + 0.95 / 2) + 3 * 2), 1e-3);
  EXPECT_EQ(action->command, "build/ferry serve --model m --threads 2");
}

/// Handing an operator of 40 us to sixteen threads takes 8, and one of 5 us is not handed to any.
TEST(AdviseTest, ShortOperatorsAreNotSharedOut) {
  KnownCapture run({.num_workers = 0, .own_us = 40, .own_row_us = 0, .head_us = 5, .expert_us = 5, .expert_row_us = 0});
  for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 1, 1);
  run.rank(0).cores = "0-15";
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "threads");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  const double share = 0.05 + 0.95 / 16;
  EXPECT_NEAR(action->after / action->before, 55 / (5 + std::min(10.0, 10 * share + 8) + 40 * share + 8), 1e-3);
}

/// A step of 4 sequences, of which the first `drafting` try as many drafts.
void step_with_drafts(KnownCapture& run, uint32_t drafting, uint32_t drafts, uint32_t kept) {
  const uint64_t begin = run.now();
  run.step(Phase::kDecode, 4 + drafting * drafts, 4);
  for (uint32_t r = 0; r < drafting; ++r)
    run.small().span(0, Zone::kRequestVerify, begin, run.now() - 1000, r, pack_verify(drafts, kept),
                     {run.num_steps() - 1, kNoLayer});
}

/// 4 sequences that try 3 drafts each, of which none is ever right: each step gives 4 tokens for 16 rows.
void draft_in_vain(KnownCapture& run) {
  run.info().settings["--speculate"] = "3";
  for (int i = 0; i < 40; ++i) {
    step_with_drafts(run, 4, 3, 0);
    run.step(Phase::kPrefill, 64, 1);
  }
}

TEST(AdviseTest, DraftsThatAreNeverRightAreNotWorthTheirRows) {
  KnownCapture run({.num_workers = 0});
  draft_in_vain(run);
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "drafts");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  EXPECT_EQ(action->from, "3");
  EXPECT_EQ(action->to, "0");
  // 16 rows touch all 16 experts; 4 rows 8 of them.
  const double before = 100 + 160 + 30 + 16 * 20 + 32 * 2, after = 100 + 40 + 30 + 8 * 20 + 8 * 2;
  EXPECT_NEAR(action->before, 4e6 / before, 0.01 * action->before);
  EXPECT_NEAR(action->after, 4e6 / after, 0.12 * action->after) << all_actions(findings);
}

/// Choosing tokens takes as long where fewer rows give as many.
TEST(AdviseTest, ChoosingTokensIsNotSavedWithDrafts) {
  constexpr double kSample = 100;
  KnownCapture run({.num_workers = 0, .sample_us = kSample, .own_zone = Zone::kInputNorm});
  run.info().read_bytes_per_s = 1e9;
  // The head reads weights, and takes as long for fewer rows; own work goes by its rows.
  run.info().model.operators = {{.zone = Zone::kLmHead, .factors = Factors::kValues, .bytes = {.fixed = 30e3}}};
  draft_in_vain(run);
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "drafts");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  const double after = 4.0 / 16 * (100 + 160) + 30 + 8 * 20 + 8 * 2 + 4 * kSample;
  EXPECT_NEAR(action->after, 4e6 / after, 0.08 * action->after) << all_actions(findings);
}

/// One draft is always right, but only two of four sequences ever find one. Where they do, eight drafts go over the same text
/// in two ninths of the steps; where they do not, in as many as before.
TEST(AdviseTest, MoreDraftsDoNotFindMore) {
  KnownCapture run({.num_workers = 0, .rows_are_drafts = true});
  run.info().settings["--speculate"] = "ngram:1";
  for (int i = 0; i < 100; ++i) step_with_drafts(run, 2, 1, 1);
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "drafts");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  ASSERT_EQ(action->to, "ngram:8");
  const double steps = 0.5 + 1.0 / 9, tokens = 4 * 1.5 / steps, rows = 4 * (1 + 8 * (1.0 / 9) / steps);
  // In steps in which nobody tries any, four rows touch eight experts; in the others all are touched.
  const double nobody = std::pow(1 - (1.0 / 9) / steps, 4);
  const double after = 100 + 10 * rows + 30 + (16 - 8 * nobody) * 20 + 2 * rows * 2;
  EXPECT_NEAR(action->after, 1e6 * tokens / after, 0.12 * action->after) << all_actions(findings);
}

/// Sixteen experts of 20 MB are read in 20 us each at 1 TB/s, and take 2 us for their row. With codes of 4 bits they take 0.28
/// of that, but these are taken apart no faster than at 0.23 of the multiply-adds of vectors, a sixteenth of what tiles have.
TEST(AdviseTest, CodesAreReadQuicklyAndTakenApartSlowly) {
  const double of_vectors = 2 * 10e6 / (0.23 * 18e-6);
  for (const double flops_per_s : {0.0, of_vectors, 16 * of_vectors}) {
    const double taken_apart_us = flops_per_s > 0 ? 18 : 0;
    KnownCapture run({.num_workers = 0});
    run.rank(0).num_threads = 8;
    run.info().read_bytes_per_s = 1e12;
    run.info().flops_per_s = flops_per_s;
    run.info().model.operators = {{.zone = Zone::kGroupedGateUp, .factors = Factors::kValues, .bytes = {.per_b = 20e6}}};
    for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 8, 8);
    const std::vector<Finding> findings = advise(run.take());
    double after = 0;
    for (const Finding& finding : findings)
      for (const Action& action : finding.actions)
        if (action.to == "w4a8") after = action.after;
    const double left = std::max(352 * 0.28, 16 * taken_apart_us);
    EXPECT_NEAR(after, 8e6 / (100 + 80 + 30 + left), 0.01 * after) << all_actions(findings);
    EXPECT_GT(after, 0) << all_actions(findings);
  }
}

/// Microseconds of the coordinator's own work in a step of four sequences and so many rows, as draft proposals count it.
double own_us_of_four(Capture capture, double rows) {
  const ReportInput input(std::move(capture));
  const CaptureReplay replay(input);
  return 1e6 * with_rows_of(replay, replay.groups.front(), 4).front().alone.own_decode.at(rows);
}

TEST(DraftCostsTest, WhatSequencesTakeIsNotTakenForTheirRows) {
  KnownCapture run({.num_workers = 0, .own_sequence_us = 50});
  for (int i = 0; i < 60; ++i) run.step(Phase::kDecode, i % 3 == 0 ? 4 : 8, i % 2 == 0 ? 4 : 3);
  EXPECT_NEAR(own_us_of_four(run.take(), 36), 100 + 4 * 50 + 36 * 10, 6);
}

/// All steps have nine rows a sequence: what one row of each takes is what the layer that guesses says.
TEST(DraftCostsTest, GuessesTellWhatFewRowsTake) {
  for (const bool guesses : {true, false}) {
    KnownCapture run({.num_workers = 0, .own_sequence_us = 50, .guess_us = guesses ? 340.0 : 0.0});
    for (int i = 0; i < 60; ++i) run.step(Phase::kDecode, i % 2 == 0 ? 36 : 18, i % 2 == 0 ? 4 : 2);
    const double found = own_us_of_four(run.take(), 4);
    if (guesses)
      EXPECT_NEAR(found, 100 + 4 * 50 + 4 * 10, 45);
    else
      EXPECT_LT(found, 200);
  }
}

/// Own work of four sequences with two rows each, of which half reads weights: more rows take more of the other half alone.
TEST(DraftCostsTest, WeightsAreReadOnceForAllRows) {
  KnownCapture run({.num_workers = 0, .own_us = 100, .own_row_us = 25, .own_zone = Zone::kInputNorm});
  run.info().model.operators = {{.zone = Zone::kInProjZ, .factors = Factors::kValues, .bytes = {.fixed = 1e3}}};
  for (int i = 0; i < 40; ++i) {
    const uint64_t begin = run.now();
    run.step(Phase::kDecode, 8, 4);
    run.small().span(0, Zone::kInProjZ, begin, begin + 150'000, 8, 0, {run.num_steps() - 1, 0});
  }
  EXPECT_NEAR(own_us_of_four(run.take(), 36), 150 + 150 * 36 / 8.0, 2);
}

/// All own work reads keys, for two rows of each sequence: where products are made in tiles, one row takes as long.
TEST(DraftCostsTest, ATileTakesAsLongForOneRow) {
  for (const double flops_per_s : {0.3e12, 2.5e12}) {
    KnownCapture run({.num_workers = 0, .own_us = 0, .own_row_us = 50});
    run.info().flops_per_s = flops_per_s;
    run.info().model.operators = {{.zone = Zone::kInProjZ, .factors = Factors::kValues, .bytes = {.fixed = 1e3}}};
    for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 8, 4);
    EXPECT_NEAR(own_us_of_four(run.take(), 4), flops_per_s > 1e12 ? 400 : 200, 2) << flops_per_s;
  }
}

/// Two layers of 1 GFLOP a row: products of many rows come to 0.8 of what vectors multiply at most, and to 0.2 of tiles.
TEST(ReplayCostsTest, TilesComeToLessOfTheirRoof) {
  for (const double flops_per_s : {0.5e12, 4e12}) {
    KnownCapture run({.num_workers = 0});
    run.info().flops_per_s = flops_per_s;
    run.info().model.operators = {{.zone = Zone::kInProjZ,
                                   .num_layers = 2,
                                   .factors = Factors::kValues,
                                   .flop = {.per_row = 1e9},
                                   .bytes = {.fixed = 1e3}}};
    for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 8, 4);
    const ReportInput input(run.take());
    const CaptureReplay replay(input);
    ASSERT_TRUE(replay.costs.has_value());
    EXPECT_NEAR(replay.costs->own_roof.row, 2e9 / (flops_per_s > 1e12 ? 0.8e12 : 0.4e12), 1e-9) << flops_per_s;
  }
}

/// In three of four rows the same two experts of sixteen: steps of four rows touch fewer than rows would that are drawn one by
/// one, and so do steps of more.
TEST(DraftCostsTest, RowsOfOneTextAskForTheSameExperts) {
  KnownCapture run({.num_workers = 0, .hot_worker = 0});
  for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 4, 2);
  ReportInput input(run.take());
  const CaptureReplay any(input);
  double touched = 0;
  for (const ExpertCall& call : any.calls) touched += call.touched / static_cast<double>(any.calls.size());
  const ExpertsOfRows experts(any, any.groups.front());
  double drawn = 0, all = 0;
  for (const int64_t count : input.capture.info.expert_tokens[0]) all += static_cast<double>(count);
  for (const int64_t count : input.capture.info.expert_tokens[0])
    drawn += 1 - std::pow(1 - std::min(1.0, 2 * static_cast<double>(count) / all), 4);
  EXPECT_NEAR(experts.share_of_drawn(4), std::min(1.0, touched / drawn), 1e-3);
  EXPECT_LT(experts.share_of_drawn(32), 1);
}

/// Who waits for tokens is woken once, however many there are.
TEST(CaptureReplayTest, TokensAreHandedOutOnce) {
  KnownCapture run({.num_workers = 0, .sample_us = 10, .publish_us = 70});
  for (int i = 0; i < 40; ++i) run.step(Phase::kDecode, 8, 8);
  const ReportInput input(run.take());
  EXPECT_NEAR(1e6 * CaptureReplay(input).tokens_s(20), 270, 0.1);
}

/// Its weights lie in caches when it comes to its next guess, which says nothing of the model's own experts.
TEST(ReplayCostsTest, ExpertsOfTheLayerThatGuessesAreNotCounted) {
  KnownCapture run({.num_workers = 0, .guess_us = 100});
  for (int i = 0; i < 60; ++i) run.step(Phase::kDecode, 8, 8);
  const ReportInput input(run.take());
  const CaptureReplay replay(input);
  ASSERT_EQ(replay.calls.size(), 60u);
  for (const ExpertCall& call : replay.calls) EXPECT_GT(1e6 * call.seconds, 20) << call.layer;
}

/// Eight rows go to two workers with half of their experts each: three of four have one there. The way of the quick one bounds
/// what an exchange takes whatever its bytes.
TEST(ReplayCostsTest, WaysAndRowsOfWorkersAreTakenApart) {
  KnownCapture run({.num_workers = 2, .link_us = 40, .slow_way = {1, 20}});
  for (int i = 0; i < 100; ++i) run.step(Phase::kDecode, 8, 8);
  const ReportInput input(run.take());
  const CaptureReplay replay(input);
  ASSERT_TRUE(replay.costs.has_value());
  EXPECT_NEAR(replay.costs->model.row_out_bytes, 801.0 / 6, 0.02 * 801 / 6);
  EXPECT_NEAR(replay.costs->model.row_in_bytes, 801.0 / 8, 0.02 * 801 / 8);
  EXPECT_NEAR(1e6 * replay.costs->hosts.front().handling.at(0), 40, 1);
}

/// The worker with less to do gets its rows 40 us later: by as much less the other would be done sooner, were both even.
TEST(ReplayCostsTest, EvenWorkDoesNotBeginSooner) {
  std::vector<double> found;
  for (const double way : {1.0, 5.0}) {
    KnownCapture run({.num_workers = 2, .expert_row_us = 20, .link_us = 20, .slow_way = {1, way}, .hot_worker = 0});
    for (int i = 0; i < 200; ++i) run.step(Phase::kDecode, 8, 8);
    const ReportInput input(run.take());
    const CaptureReplay replay(input);
    ASSERT_TRUE(replay.costs.has_value());
    found.push_back(0);
    for (const double seconds : replay.costs->step_imbalance) found.back() += 1e6 * seconds;
  }
  EXPECT_NEAR(found[0] - found[1], 200 * 40, 0.05 * 200 * 40);
}

/// A job that is started with copies knows nothing of its experts' load unless it is given one.
TEST(PlanReplayTest, CopiesAreMadeBlindWhereNoLoadIsKnown) {
  KnownCapture run({.num_workers = 4, .expert_us = 40, .expert_row_us = 10, .link_us = 5, .hot_worker = 1});
  for (int i = 0; i < 200; ++i) run.step(Phase::kDecode, 8, 8);
  const ReportInput input(run.take());
  const CaptureReplay replay(input);
  PlanReplay model(replay);
  PlanCase c = replay.costs->captured;
  c.copies = {"12.5%", Redundancy::Kind::kExtraSlots, 0.125};
  const double known = model.decode_seconds(c, 8);
  c.knows_loads = false;
  EXPECT_GT(model.decode_seconds(c, 8), 1.02 * known);
}

TEST(AdviseTest, SmallPiecesOfPromptsAreFewerAndLarger) {
  KnownCapture run({.num_workers = 0});
  run.info().settings["--prefill-chunk"] = "64";
  run.info().settings["--token-budget"] = "2112";
  run.info().settings["--max-seqs"] = "4";
  // Prompts of 320 tokens, each in five pieces, and one token.
  for (uint32_t r = 0; r < 12; ++r) {
    const uint64_t arrival = run.now();
    for (int piece = 0; piece < 5; ++piece) {
      const uint64_t begin = run.now();
      run.step(Phase::kPrefill, piece == 4 ? 32 : 64, 1);
      run.small().span(0, Zone::kRequestStep, begin, run.now() - 1000, r, piece == 4 ? 32 : 64,
                       {run.num_steps() - 1, kNoLayer});
    }
    run.small().span(0, Zone::kRequestQueue, arrival, arrival + 10, r, 288);
    run.small().span(0, Zone::kRequestPrefill, arrival + 10, run.now() - 1000, r, 288);
    run.small().span(0, Zone::kRequestFinish, run.now() - 1000, run.now() - 1000, r, 2);
  }
  const std::vector<Finding> findings = advise(run.take());
  const Action* action = find_action(findings, "prefill_chunk");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  EXPECT_EQ(action->option, "--prefill-chunk");
  EXPECT_EQ(action->from, "64");
  EXPECT_EQ(action->metric, "TTFT p50 ms");
  // Five steps of 100 + 30 us and what experts take once become one; its rows take as long.
  const double rows = 288 * 10 + 2 * 288 * 2, once = 100 + 30 + 16 * 20;
  EXPECT_NEAR(action->before, (rows + 5 * once + 4) / 1000, 0.02 * action->before);
  EXPECT_NEAR(action->after, (rows + once) / 1000, 0.1 * action->after) << all_actions(findings);
}

TEST(AdviseTest, RanksThatShareCoresAreSaidToAlsoWhereNothingCanBePredicted) {
  KnownCapture run({.num_workers = 2});
  for (int i = 0; i < 40; ++i) {
    const uint64_t begin = run.now();
    const double took = run.step(Phase::kDecode, 8, 8);
    run.small().span(1, Zone::kCoreWait, begin, run.now() - 1000, static_cast<uint32_t>(took / 2), 101,
                     {run.num_steps() - 1, 0});
  }
  run.rank(0).num_threads = 2;  // which compute all that two workers did, without messages between
  for (int32_t r = 0; r < 3; ++r) run.rank(r).cores = "0-1", run.rank(r).host = "one", run.rank(r).boot_id = "b";
  const std::vector<Finding> findings = advise(run.take());
  bool is_said = false;
  for (const Finding& finding : findings) is_said = is_said || finding.kind == "cores_shared";
  EXPECT_TRUE(is_said) << all_actions(findings);
  const Action* action = find_action(findings, "ranks");
  ASSERT_NE(action, nullptr) << all_actions(findings);
  EXPECT_EQ(action->to, "1");
  EXPECT_EQ(action->command, "build/ferry serve --model m");
  // Sixteen rows touch all experts, on twice as many threads as a worker has: 100 + 80 + 30 behind half of 16 * 20 + 16 * 2.
  EXPECT_NEAR(1e6 * 8 / action->after, 210 + 176, 1) << all_actions(findings);
}

}  // namespace
}  // namespace ferry
