#include "launch/verify/verification.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/worker_state.h"
#include "tests/launch/verify/made_runs.h"

namespace ferry {
namespace {

using test::make_run_of_steps;
using test::noisy_steps;

const std::string kBefore = "ferry serve --model demo --token-budget 80 --trace a",
                  kAfter = "ferry serve --model demo --token-budget=512 --trace b";

Action budget_action(double before, double after) {
  return {.kind = "token_budget",
          .text = "Give steps more rows.",
          .option = "--token-budget",
          .from = "80",
          .to = "512",
          .command = "",
          .metric = "decode ms a step",
          .before = before,
          .after = after,
          .assumes = ""};
}

Verification verify_steps(const std::vector<double>& before_us, const std::vector<double>& after_us, const Action& action,
                          double after_wait_share = 0.5) {
  const ReportInput before(make_run_of_steps({.command = kBefore, .step_us = before_us}));
  const ReportInput after(make_run_of_steps({.command = kAfter, .step_us = after_us, .wait_share = after_wait_share}));
  return verify(before, after, std::vector<Action>{action});
}

std::string refusal(const Capture& before, const Capture& after) {
  try {
    verify(ReportInput(before), ReportInput(after), {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

std::vector<double> alternating(std::size_t count, double us) {
  std::vector<double> lengths;
  for (std::size_t i = 0; i < count; ++i) lengths.push_back(i % 2 == 0 ? us - 1 : us + 1);
  return lengths;
}

TEST(VerificationTest, APlantedGainCameExactly) {
  // 1000 us, half of them a wait for rank 1, become 800 us of which 300 are: the wait alone became shorter.
  const Verification seen = verify_steps(alternating(64, 1000), alternating(80, 800), budget_action(1, 0.8), 0.375);
  ASSERT_EQ(seen.changes.size(), 1U) << "where a trace goes is no change";
  EXPECT_EQ(seen.changes[0].option, "--token-budget");
  EXPECT_EQ(seen.changes[0].before, "80");
  EXPECT_EQ(seen.changes[0].after, "512");
  ASSERT_EQ(seen.actions.size(), 1U);
  const Verification::ActionResult& result = seen.actions[0];
  EXPECT_TRUE(result.was_tried);
  EXPECT_NEAR(result.predicted, 0.2, 1e-9);
  ASSERT_TRUE(result.measured);
  EXPECT_NEAR(result.measured->before, 1, 1e-9);
  EXPECT_NEAR(result.measured->after, 0.8, 1e-9);
  EXPECT_NEAR(result.measured->share, 0.2, 1e-9);
  EXPECT_NEAR(result.measured->low, 0.2, 1e-3);
  EXPECT_NEAR(result.measured->high, 0.2, 1e-3);
  EXPECT_EQ(result.verdict, Verdict::kCame);
  EXPECT_EQ(seen.exit_code(), 0);
  EXPECT_NEAR(result.difference.saved_us(), 50, 1e-2) << "a quarter of a step, for each of four tokens";
  EXPECT_EQ(result.difference.coordinator.at(0).what, "wait.combine for rank 1");
  EXPECT_NEAR(result.difference.coordinator.at(0).saved_us(), 50, 1e-2);
  double sum = 0;
  for (const TimeShare& share : result.difference.coordinator) sum += share.saved_us();
  EXPECT_NEAR(sum, result.difference.saved_us(), 1e-9);
  EXPECT_EQ(result.difference.workers.at(0).what, "experts of rank 1");
}

TEST(VerificationTest, APartOfAGainIsToldFromAllOfIt) {
  const auto verdict_of = [](double after_us) {
    return verify_steps(alternating(64, 1000), alternating(64, after_us), budget_action(1, 0.8)).actions[0].verdict;
  };
  EXPECT_EQ(verdict_of(700), Verdict::kCame);
  EXPECT_EQ(verdict_of(845), Verdict::kCame);
  EXPECT_EQ(verdict_of(855), Verdict::kCameInPart);
  EXPECT_EQ(verdict_of(945), Verdict::kCameInPart);
  EXPECT_EQ(verdict_of(955), Verdict::kDidNotCome);
  EXPECT_EQ(verdict_of(1000), Verdict::kDidNotCome);
  EXPECT_EQ(verdict_of(1200), Verdict::kDidNotCome) << "the opposite";
}

TEST(VerificationTest, WhereNothingIsGainedNothingComes) {
  int num_did_not_come = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Verification seen = verify_steps(noisy_steps(200, 1000, 0.05, 0, 2 * seed),
                                           noisy_steps(200, 1000, 0.05, 0, 2 * seed + 1), budget_action(1, 0.9));
    EXPECT_NE(seen.actions[0].verdict, Verdict::kCame) << seed;
    EXPECT_NE(seen.actions[0].verdict, Verdict::kCameInPart) << seed;
    num_did_not_come += seen.actions[0].verdict == Verdict::kDidNotCome ? 1 : 0;
  }
  EXPECT_GT(num_did_not_come, 180) << "noise of a step averages out";
}

TEST(VerificationTest, AMachineThatWandersHidesAGainAndMakesNone) {
  // Its speed goes up and down by a fifth, more slowly than blocks are long.
  int num_came = 0, num_unknown = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const Verification seen = verify_steps(noisy_steps(400, 1000, 0.05, 0.2, 2 * seed),
                                           noisy_steps(400, 1000, 0.05, 0.2, 2 * seed + 1), budget_action(1, 0.9));
    num_came += seen.actions[0].verdict == Verdict::kCame ? 1 : 0;
    num_unknown += seen.actions[0].verdict == Verdict::kCannotBeTold ? 1 : 0;
  }
  EXPECT_LT(num_came, 45) << "37; 62 without the error that quarters tell of";
  EXPECT_GT(num_unknown, 200);
}

TEST(VerificationTest, AGainThatNoiseWouldHideIsFoundWithStepsEnough) {
  int num_came = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Verification seen = verify_steps(noisy_steps(400, 1000, 0.2, 0, 2 * seed),
                                           noisy_steps(400, 900, 0.2, 0, 2 * seed + 1), budget_action(1, 0.9));
    num_came += seen.actions[0].verdict == Verdict::kCame ? 1 : 0;
  }
  EXPECT_GT(num_came, 60);
}

Verification verify_on(double read_share, double after_us, const Action& action) {
  Capture before = make_run_of_steps({.command = kBefore, .step_us = alternating(64, 1000)});
  Capture after = make_run_of_steps({.command = kAfter, .step_us = alternating(64, after_us)});
  before.info.read_bytes_per_s = 10e9;
  after.info.read_bytes_per_s = read_share * 10e9;
  return verify(ReportInput(before), ReportInput(after), std::vector<Action>{action});
}

/// Runs of the same speed whose second one multiplies codes, which its processor does twice as quickly.
Verification verify_with_codes(const std::string& option) {
  Capture before = make_run_of_steps({.command = "ferry serve", .step_us = alternating(64, 1000)});
  Capture after = make_run_of_steps({.command = "ferry serve " + option, .step_us = alternating(64, 700)});
  before.info.settings["--quantize"] = "none";
  after.info.settings["--quantize"] = "none";
  before.info.flops_per_s = 1e11;
  after.info.flops_per_s = 2e11;
  Action action = budget_action(1, 0.7);
  action.option = "--quantize", action.from = "none", action.to = "w8a8";
  return verify(ReportInput(before), ReportInput(after), std::vector<Action>{action});
}

std::string text_of(const Verification& verification) {
  std::string text;
  for (const std::string& line : verification_lines(verification)) text += line + "\n";
  return text;
}

TEST(VerificationTest, WhatTheMachineItselfMayHaveDoneIsNotCertain) {
  const Action action = budget_action(1, 0.8);
  const Verification slower = verify_on(0.7, 1300, action);
  EXPECT_EQ(slower.actions[0].verdict, Verdict::kCannotBeTold);
  EXPECT_EQ(slower.exit_code(), 3);
  const std::string text = text_of(slower);
  EXPECT_NE(text.find("the machine itself read memory 30 % slower in the second capture"), std::string::npos) << text;
  EXPECT_NE(text.find("cannot be told: the machine itself was up to 30 % slower"), std::string::npos) << text;
  EXPECT_NE(text.find("cannot be told (machine)"), std::string::npos) << text;
  EXPECT_EQ(text.find("WORSE"), std::string::npos) << text;
  EXPECT_EQ(verify_on(0.7, 780, action).actions[0].verdict, Verdict::kCame) << "in spite of the machine";
  EXPECT_EQ(verify_on(1.3, 780, action).actions[0].verdict, Verdict::kCannotBeTold) << "a faster machine";
  EXPECT_EQ(verify_on(1.3, 1300, action).actions[0].verdict, Verdict::kDidNotCome);
  EXPECT_NE(text_of(verify_on(1.3, 1300, action)).find("WORSE"), std::string::npos);
  EXPECT_EQ(verify_on(0.95, 1300, action).actions[0].verdict, Verdict::kDidNotCome) << "the same machine";
}

TEST(VerificationTest, OtherCodesAreNoOtherMachine) {
  const Verification quantized = verify_with_codes("--quantize w8a8");
  EXPECT_EQ(quantized.actions[0].verdict, Verdict::kCame) << text_of(quantized);
  EXPECT_EQ(quantized.warnings, std::vector<std::string>{});
  const Verification faster = verify_with_codes("--threads 2");
  ASSERT_EQ(faster.warnings.size(), 1U);
  EXPECT_EQ(faster.warnings[0], "the machine itself multiplied 100 % faster in the second capture");
}

TEST(VerificationTest, ACaptureAndItselfAreSaidToBeOne) {
  const Capture run = make_run_of_steps({.command = kBefore, .step_us = alternating(64, 1000)});
  const Verification seen = verify(ReportInput(run), ReportInput(run), {});
  EXPECT_EQ(seen.warnings, std::vector<std::string>{"both are the same capture"});
  EXPECT_NE(text_of(seen).find("steps, us a useful token: +0.0 (250.0 to 250.0)\n"), std::string::npos) << text_of(seen);
  Capture later = run;
  later.info.start_epoch_ns += 1;
  EXPECT_TRUE(verify(ReportInput(run), ReportInput(later), {}).warnings.empty());
}

TEST(VerificationTest, WhatLiesBeyondThePredictionsOwnErrorIsSaid) {
  Action action = budget_action(1, 0.8);
  action.error_share = 0.05;
  const auto line_of = [&](double after_us) { return text_of(verify_on(1, after_us, action)); };
  EXPECT_EQ(line_of(830).find("outside"), std::string::npos) << line_of(830);
  EXPECT_NE(line_of(700).find("came; outside of what was predicted, +15.0 to +25.0 %"), std::string::npos) << line_of(700);
  action.metric = "decode tokens/s";  // work by time: four tokens a millisecond become five, give or take 0.0625 of four
  action.before = 4000, action.after = 5000;
  EXPECT_NE(line_of(700).find("outside of what was predicted, +18.8 to +31.2 %"), std::string::npos) << line_of(700);
  action.error_share = 0;
  EXPECT_EQ(line_of(700).find("outside"), std::string::npos) << "not told";
}

TEST(VerificationTest, RowsThatContradictEachOtherAreExplained) {
  const Capture before = make_run_of_steps({.command = kBefore, .step_us = alternating(64, 1000)});
  const Capture after = make_run_of_steps({.command = kAfter, .step_us = alternating(64, 1500), .num_sequences = 8});
  const std::string text = text_of(verify(ReportInput(before), ReportInput(after), {}));
  EXPECT_NE(text.find("decode: steps of 4.0 useful tokens, then of 8.0: each takes longer, and tokens/s is higher\n"),
            std::string::npos)
      << text;
}

TEST(VerificationTest, TooFewStepsTellNothing) {
  const Verification seen = verify_steps({1000, 1001, 999}, {800, 801, 799}, budget_action(1, 0.8));
  EXPECT_EQ(seen.actions[0].verdict, Verdict::kCannotBeTold);
  EXPECT_EQ(seen.exit_code(), 3);
  EXPECT_NE(text_of(seen).find("cannot be told: too few\n"), std::string::npos) << text_of(seen);
  EXPECT_EQ(text_of(seen).find("no difference"), std::string::npos) << text_of(seen);
}

TEST(VerificationTest, AnActionCountsOnlyWithTheValueThatItNamed) {
  Action other = budget_action(1, 0.8);
  other.to = "1024";
  const Verification seen = verify_steps(alternating(64, 1000), alternating(64, 800), other);
  EXPECT_FALSE(seen.actions[0].was_tried);
  EXPECT_EQ(seen.actions[0].tried, "512");
  EXPECT_EQ(seen.exit_code(), 3);
  Action unknown = budget_action(1, 0.8);
  unknown.metric = "TTFT p50 ms";
  EXPECT_EQ(verify_steps(alternating(64, 1000), alternating(64, 800), unknown).exit_code(), 3) << "no such figure";
  EXPECT_EQ(verify_steps(alternating(64, 800), alternating(64, 1000), budget_action(1, 0.8)).exit_code(), 1);
}

TEST(VerificationTest, OtherWorkIsRefusedInALine) {
  const Capture run = make_run_of_steps({.step_us = alternating(32, 1000)});
  Capture other = run;
  EXPECT_EQ(refusal(run, other), "");
  other.info.model.layer_types = {"full_attention"};
  EXPECT_NE(refusal(run, other).find("other models"), std::string::npos) << refusal(run, other);
  other = run;
  other.info.model.top_k = 2;
  EXPECT_NE(refusal(run, other).find("2 of them a token"), std::string::npos) << refusal(run, other);
  Capture narrow = run, wide = run;
  narrow.info.model.operators = {
      {.zone = Zone::kLmHead, .flop = {.per_row = 100}, .bytes = {.fixed = 100}, .inputs = {}, .outputs = {}}};
  wide.info.model.operators = {
      {.zone = Zone::kLmHead, .flop = {.per_row = 200}, .bytes = {.fixed = 200}, .inputs = {}, .outputs = {}}};
  EXPECT_NE(refusal(narrow, wide).find("other models"), std::string::npos) << "what an operator computes for a row";
  wide.info.model.operators[0].flop.per_row = 100;
  EXPECT_EQ(refusal(narrow, wide), "") << "codes of another width are the same model";
  other = run;
  other.info.command = "ferry bench --model demo";
  EXPECT_NE(refusal(run, other).find("'ferry serve', then 'ferry bench'"), std::string::npos) << refusal(run, other);
  const Capture one = make_run_of_steps({.step_us = {}});
  EXPECT_NE(refusal(run, one).find("no steps"), std::string::npos) << refusal(run, one);
}

Capture with_prompts(Capture capture, uint32_t num_prompt) {
  for (uint32_t request = 0; request < 9; ++request)
    capture.ranks[0].threads[0].records.push_back(
        {.begin = 1000 * request, .end = 1000 * request + 500, .zone = Zone::kRequestPrefill, .a = request, .b = num_prompt});
  return capture;
}

TEST(VerificationTest, PromptsOfOtherLengthsAreOtherWork) {
  const Capture run = make_run_of_steps({.step_us = alternating(32, 1000)});
  EXPECT_EQ(refusal(with_prompts(run, 100), with_prompts(run, 120)), "");
  const std::string line = refusal(with_prompts(run, 100), with_prompts(run, 200));
  EXPECT_NE(line.find("prompts of 100 tokens, then 200"), std::string::npos) << line;
}

TEST(VerificationTest, OtherMachinesAndSeveralChangesAreSaid) {
  Capture before = make_run_of_steps({.command = kBefore, .step_us = alternating(32, 1000)});
  Capture after = make_run_of_steps({.command = kAfter + " --threads 4", .step_us = alternating(32, 1000)});
  before.info.read_bytes_per_s = 10e9;
  after.info.read_bytes_per_s = 12e9;
  before.info.version = "1";
  after.info.version = "2";
  after.ranks[1].host = "elsewhere";
  const std::vector<std::string> warnings = verify(ReportInput(before), ReportInput(after), {}).warnings;
  const auto warns_of = [&](const std::string& what) {
    return std::any_of(warnings.begin(), warnings.end(),
                       [&](const auto& line) { return line.find(what) != std::string::npos; });
  };
  EXPECT_TRUE(warns_of("read memory 20 % faster"));
  EXPECT_TRUE(warns_of("version differs: 1, then 2"));
  EXPECT_TRUE(warns_of("host-0, host-1, then elsewhere, host-0"));
  EXPECT_TRUE(warns_of("2 options differ"));
  EXPECT_EQ(warnings.size(), 4U);
}

TEST(VerificationTest, WorkersThatWereInTroubleAreSaid) {
  const Capture before = make_run_of_steps({.command = kBefore, .step_us = alternating(32, 1000)});
  Capture after = make_run_of_steps({.command = kAfter, .step_us = alternating(32, 1000)});
  const auto change = [&](uint64_t ms, WorkerState from, WorkerState to) {
    const uint64_t at = 1'000'000 * ms;
    after.ranks[0].threads[0].records.push_back(
        {.begin = at, .end = at, .zone = Zone::kWorkerChange, .a = static_cast<uint32_t>(to), .b = 1});
    after.info.worker_changes.push_back(
        {.ticks = at, .rank = 1, .from = worker_state_name(from), .to = worker_state_name(to), .reason = "because"});
  };
  change(4, WorkerState::kHealthy, WorkerState::kSuspect);
  change(20, WorkerState::kSuspect, WorkerState::kMasked);
  after.ranks[1].threads.clear();
  after.ranks[1].host = "(lost)";
  const std::vector<std::string> warnings = verify(ReportInput(before), ReportInput(after), {}).warnings;
  ASSERT_EQ(warnings.size(), 1U) << "a host that is not known is no other host";
  EXPECT_TRUE(warnings[0].starts_with(
      "in the second capture rank 1 was lost, rank 1 was late and suspected: that took 0.03 of its 0.03 s"))
      << warnings[0];
}

TEST(VerificationTest, KeptStepsOfAnArchiveAreSaid) {
  const Capture before = make_run_of_steps({.command = kBefore, .step_us = alternating(32, 1000)});
  Capture after = make_run_of_steps({.command = kAfter, .step_us = alternating(32, 1000)});
  EXPECT_TRUE(verify(ReportInput(before), ReportInput(after), {}).warnings.empty());
  after.info.selection = {{"long", 2}, {"sample", 30}};
  const std::vector<std::string> second = verify(ReportInput(before), ReportInput(after), {}).warnings;
  ASSERT_EQ(second.size(), 1U);
  EXPECT_TRUE(second[0].starts_with("the second capture is a selection, 32 kept steps of an archive")) << second[0];
  const std::vector<std::string> first = verify(ReportInput(after), ReportInput(before), {}).warnings;
  ASSERT_EQ(first.size(), 1U);
  EXPECT_TRUE(first[0].starts_with("the first capture")) << first[0];
}

TEST(VerificationTest, TextAndJsonSayTheSame) {
  const Verification seen = verify_steps(alternating(64, 1000), alternating(64, 800), budget_action(1, 0.8), 0.375);
  std::string text;
  for (const std::string& line : verification_lines(seen)) text += line + "\n";
  EXPECT_NE(text.find("changed: --token-budget 80 -> 512\n"), std::string::npos) << text;
  EXPECT_NE(text.find("action --token-budget 80 -> 512: decode ms a step predicted +20.0 %, measured +20.0 %"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("): came\n"), std::string::npos) << text;
  EXPECT_NE(text.find("most of it: wait.combine for rank 1 -50.0 (125.0 to 75.0)"), std::string::npos) << text;
  const nlohmann::ordered_json json = verification_json(seen);
  EXPECT_EQ(json["actions"][0]["verdict"], "came");
  EXPECT_NEAR(json["actions"][0]["measured"]["gain"].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(json["exit_code"], 0);
  EXPECT_EQ(json["changes"][0]["after"], "512");
}

}  // namespace
}  // namespace ferry
