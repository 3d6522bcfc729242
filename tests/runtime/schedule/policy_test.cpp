#include "runtime/schedule/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "runtime/base/error.h"
#include "runtime/schedule/account_numbers.h"
#include "runtime/schedule/chunk_control.h"
#include "runtime/schedule/fair_turns.h"
#include "runtime/schedule/scheduler.h"
#include "tests/support/one_choice_each.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = Scheduler::TimePoint;

TEST(FairTurns, SharesByTokensWhateverThePiecesAre) {
  FairTurns turns(256);
  const std::vector<int32_t> accounts = {0, 1, 2};
  const std::vector<int64_t> pieces = {64, 7, 250};
  std::map<int32_t, int64_t> taken;
  for (int i = 0; i < 20'000; ++i) {
    turns.keep(accounts);
    const int32_t next = turns.next();
    const int64_t piece = pieces[static_cast<std::size_t>(next)];
    if (!turns.next_may_take(piece)) continue;
    turns.take(piece);
    taken[next] += piece;
    for (const int32_t account : accounts)
      ASSERT_LT(turns.deficit_of(account), 256 + pieces[static_cast<std::size_t>(account)]);
  }
  const auto [least, most] = std::ranges::minmax_element(taken, {}, [](const auto& entry) { return entry.second; });
  EXPECT_LE(most->second - least->second, 256 + 250);
}

TEST(FairTurns, GivesNoCreditForHavingBeenIdle) {
  FairTurns turns(100);
  turns.keep(std::vector<int32_t>{0, 1});
  for (int i = 0; i < 50; ++i) {
    if (turns.next_may_take(30)) turns.take(30);
  }
  turns.keep(std::vector<int32_t>{0});  // the other one is idle
  EXPECT_EQ(turns.deficit_of(1), 0);
  for (int i = 0; i < 50; ++i) {
    if (turns.next_may_take(30)) turns.take(30);
  }
  turns.keep(std::vector<int32_t>{1, 0});
  EXPECT_EQ(turns.next(), 0) << "who comes back stands at the end";
  EXPECT_EQ(turns.deficit_of(1), 0);
}

TEST(FairTurns, SavesUpForWhatIsMoreThanATurn) {
  FairTurns turns(100);
  turns.keep(std::vector<int32_t>{0, 1});
  int64_t small = 0, large = 0;
  while (large < 5) {
    const bool is_large = turns.next() == 0;
    if (!turns.next_may_take(is_large ? 1000 : 50)) continue;
    turns.take(is_large ? 1000 : 50);
    ++(is_large ? large : small);
  }
  EXPECT_NEAR(static_cast<double>(small) * 50, 5000, 200);
}

TEST(AccountNumbers, AreUsedAgain) {
  AccountNumbers accounts;
  EXPECT_EQ(accounts.enter("a"), 0);
  EXPECT_EQ(accounts.enter("b"), 1);
  EXPECT_EQ(accounts.enter("a"), 0);
  accounts.leave("a");
  EXPECT_EQ(accounts.size(), 2);
  accounts.leave("a");
  EXPECT_EQ(accounts.size(), 1);
  EXPECT_EQ(accounts.enter("c"), 0);
  EXPECT_EQ(accounts.enter("d"), 2);
  accounts.leave("b");
  EXPECT_EQ(accounts.enter("a"), 1);
}

/// Steps of a machine for which `seconds_of` holds, but for noise of `noise`; the last `num_judged` rows that were allowed.
std::vector<int64_t> run_control(ChunkControl& control, const std::function<double(int64_t)>& seconds_of, double noise,
                                 int num_steps, int num_judged) {
  std::mt19937 rng(5);
  std::normal_distribution<double> factor(1, noise);
  std::vector<int64_t> rows;
  for (int i = 0; i < num_steps; ++i) {
    const int64_t num_rows = i % 5 == 0 ? 0 : control.num_rows();
    control.add_step(num_rows, seconds_of(num_rows) * std::max(factor(rng), 0.1));
    if (i >= num_steps - num_judged && num_rows > 0) rows.push_back(num_rows);
  }
  return rows;
}

TEST(ChunkControl, BeginsWithOneQuantumAndTrustsNoMoreThanTwiceWhatItSaw) {
  ChunkControl control(1.0, 64, 2048);
  EXPECT_EQ(control.num_rows(), 64);
  control.add_step(0, 0.01);
  EXPECT_EQ(control.num_rows(), 64);
  control.add_step(64, 0.02);
  EXPECT_EQ(control.num_rows(), 128);
  control.add_step(128, 0.03);
  EXPECT_EQ(control.num_rows(), 256);
}

TEST(ChunkControl, FindsTheRowsThatFitTheTarget) {
  const auto seconds_of = [](int64_t rows) { return 0.02 + 1e-4 * static_cast<double>(rows); };
  ChunkControl control(0.1, 64, 2048);
  for (const int64_t rows : run_control(control, seconds_of, 0, 100, 50)) EXPECT_EQ(rows, 768);  // (0.1 - 0.02) / 1e-4 = 800
  EXPECT_NEAR(control.expected_s(768).value_or(0), seconds_of(768), 1e-6);
  // Everything becomes slower by half.
  const auto slower = [&](int64_t rows) { return 1.5 * seconds_of(rows); };
  for (const int64_t rows : run_control(control, slower, 0, 500, 20)) EXPECT_EQ(rows, 448);  // 0.07 / 1.5e-4 = 466
}

TEST(ChunkControl, KeepsWithinTheTargetThoughMeasurementsAreNoisy) {
  const auto seconds_of = [](int64_t rows) { return 0.02 + 1e-4 * static_cast<double>(rows); };
  ChunkControl control(0.1, 64, 2048);
  const std::vector<int64_t> rows = run_control(control, seconds_of, 0.1, 1000, 800);
  const auto is_late = [&](int64_t num_rows) { return seconds_of(num_rows) > 0.1; };
  EXPECT_LT(std::ranges::count_if(rows, is_late), std::ssize(rows) / 20);
  EXPECT_GT(*std::ranges::max_element(rows), 384);
}

TEST(ChunkControl, KeepsAQuantumWhereNothingFits) {
  ChunkControl control(0.01, 64, 2048);
  const auto rows = run_control(
      control, [](int64_t num_rows) { return 0.02 + 1e-4 * static_cast<double>(num_rows); }, 0, 60, 60);
  for (const int64_t num_rows : rows) EXPECT_EQ(num_rows, 64);
}

TEST(ChunkControl, IsNotThrownOffByOneStall) {
  const auto seconds_of = [](int64_t rows) { return 0.02 + 1e-4 * static_cast<double>(rows); };
  ChunkControl control(0.1, 64, 2048);
  run_control(control, seconds_of, 0, 60, 1);
  control.add_step(768, 30.0);
  EXPECT_GE(control.num_rows(), 128);
  EXPECT_EQ(run_control(control, seconds_of, 0, 100, 1).back(), 768);
}

SchedulerOptions policy_options(SchedulingPolicy policy) {
  SchedulerOptions options;
  options.max_running = 2;
  options.max_waiting = 100;
  options.token_budget = 192;
  options.prefill_chunk = 128;
  options.num_blocks = 200;
  options.block_tokens = 16;
  options.max_context = 2000;
  options.vocab_size = 100;
  options.policy.policy = policy;
  return options;
}

Request asked(const std::string& id, int64_t num_prompt, int64_t priority = 0, const std::string& account = "") {
  Request request;
  request.id = id;
  request.prompt.assign(static_cast<std::size_t>(num_prompt), 7);
  request.sampling.max_tokens = 5;
  request.priority = priority;
  request.account = account;
  return request;
}

/// One step; "id:first+rows …".
std::string step_of(Scheduler& scheduler, TimePoint now = TimePoint(seconds(0))) {
  const StepPlan& plan = scheduler.plan(now);
  std::string text;
  for (const StepEntry& entry : plan.entries) {
    text += (text.empty() ? "" : " ") + entry.sequence->request.id + ":" + std::to_string(entry.first_token) + "+" +
            std::to_string(entry.num_rows);
  }
  scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>(static_cast<std::size_t>(plan.num_samples), 1)), now);
  return text;
}

/// In which order requests end.
std::string order_of_ends(Scheduler& scheduler) {
  std::string order;
  for (int i = 0; i < 1000 && scheduler.load().num_running + scheduler.load().num_waiting > 0; ++i) {
    step_of(scheduler);
    for (const auto& sequence : scheduler.take_finished()) order += sequence->request.id;
  }
  return order;
}

TEST(PriorityPolicy, ServesTheLowerFirstAndEqualsByArrival) {
  SchedulerOptions options = policy_options(SchedulingPolicy::kPriority);
  options.max_running = 1;
  Scheduler scheduler(options);
  scheduler.add(asked("a", 10, 5), {});
  scheduler.add(asked("b", 10, -1), {});
  scheduler.add(asked("c", 10, 5), {});
  scheduler.add(asked("d", 10, -1), {});
  scheduler.add(asked("e", 10, 0), {});
  EXPECT_EQ(order_of_ends(scheduler), "bdeac");
  EXPECT_EQ(scheduler.load().num_preemptions, 0);
}

TEST(PriorityPolicy, TakesTheSlotOfTheYoungestOfAWorseOne) {
  Scheduler scheduler(policy_options(SchedulingPolicy::kPriority));
  scheduler.add(asked("a", 20, 1), {});
  scheduler.add(asked("b", 20, 1), {});
  EXPECT_EQ(step_of(scheduler), "a:0+20 b:0+20");
  EXPECT_EQ(step_of(scheduler), "a:20+1 b:20+1");
  scheduler.add(asked("c", 30, 1), {});  // an equal waits
  EXPECT_EQ(step_of(scheduler), "a:21+1 b:21+1");
  scheduler.add(asked("d", 40, 0), {});
  EXPECT_EQ(step_of(scheduler), "a:22+1 d:0+40");
  EXPECT_EQ(scheduler.load().num_lost_slots, 1);
  EXPECT_EQ(scheduler.load().num_preempted, 1);
  EXPECT_EQ(scheduler.load().num_waiting, 2);
  EXPECT_EQ(step_of(scheduler), "d:40+1 a:23+1");
  EXPECT_EQ(scheduler.take_finished().front()->request.id, "a");
  EXPECT_EQ(step_of(scheduler), "d:41+1 b:0+20") << "who lost its slot goes on before who came later: the prompt as before …";
  EXPECT_EQ(step_of(scheduler), "d:42+1 b:20+3") << "… and what it had generated";
  EXPECT_EQ(order_of_ends(scheduler), "dbc");
}

TEST(PriorityPolicy, AQueueThatIsFullTakesBackWhoLosesItsSlot) {
  SchedulerOptions options = policy_options(SchedulingPolicy::kPriority);
  options.max_running = 1;
  options.max_waiting = 2;
  Scheduler scheduler(options);
  scheduler.add(asked("a", 20, 9), {});
  step_of(scheduler);
  ASSERT_NE(scheduler.add(asked("b", 20, 0), {}), nullptr);
  ASSERT_NE(scheduler.add(asked("c", 20, 9), {}), nullptr);
  EXPECT_EQ(scheduler.add(asked("d", 20, 0), {}), nullptr);
  step_of(scheduler);
  EXPECT_NE(scheduler.add(asked("e", 20, 0), {}), nullptr) << "who was admitted before has no place in the queue";
  EXPECT_EQ(order_of_ends(scheduler), "beac");
}

TEST(PriorityPolicy, OthersKnowNoPriorities) {
  for (const auto policy : {SchedulingPolicy::kFcfs, SchedulingPolicy::kFair}) {
    try {
      validate_request(asked("a", 10, 3), policy_options(policy));
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), std::string("priority is 3; allowed: 0 under --policy ") +
                                               scheduling_policy_name(policy) + ", any under priority");
    }
  }
  validate_request(asked("a", 10, -3), policy_options(SchedulingPolicy::kPriority));
}

TEST(FairPolicy, IsTheDefaultWithSeveralKeys) {
  PolicyOptions options;
  EXPECT_EQ(policy_for(options, 0), SchedulingPolicy::kFcfs);
  EXPECT_EQ(policy_for(options, 1), SchedulingPolicy::kFcfs);
  EXPECT_EQ(policy_for(options, 2), SchedulingPolicy::kFair);
  options.is_given = true;
  EXPECT_EQ(policy_for(options, 2), SchedulingPolicy::kFcfs);
  options.policy = SchedulingPolicy::kPriority;
  EXPECT_EQ(policy_for(options, 2), SchedulingPolicy::kPriority);
}

/// Tokens of prompts that each account got in steps while `flood` asks for much and `guest` for little at a time.
TEST(FairPolicy, AFloodLeavesOthersTheirShare) {
  Scheduler scheduler(policy_options(SchedulingPolicy::kFair));
  for (int i = 0; i < 20; ++i) scheduler.add(asked("f" + std::to_string(i), 500, 0, "flood"), {});
  step_of(scheduler);
  step_of(scheduler);
  scheduler.add(asked("g", 60, 0, "guest"), {});
  std::string order = order_of_ends(scheduler);
  EXPECT_LE(order.find('g'), order.find("f2")) << order;
}

TEST(FairPolicy, RowsOfAStepGoToAccountsInTurn) {
  Scheduler scheduler(policy_options(SchedulingPolicy::kFair));
  scheduler.add(asked("a", 1500, 0, "one"), {});
  EXPECT_EQ(step_of(scheduler), "a:0+128");
  scheduler.add(asked("b", 1500, 0, "two"), {});
  std::map<std::string, int64_t> rows;
  for (int i = 0; i < 12; ++i) {
    const StepPlan& plan = scheduler.plan({});
    for (const StepEntry& entry : plan.entries) rows[entry.sequence->request.id] += entry.num_rows;
    scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>(static_cast<std::size_t>(plan.num_samples), 1)), {});
  }
  EXPECT_NEAR(static_cast<double>(rows["a"]), static_cast<double>(rows["b"]), 256 + 64);
  EXPECT_EQ(rows["a"] + rows["b"], 12 * 192);
}

TEST(ShortestFirst, GoesByTokensToComputeUntilWaitingCountsMore) {
  SchedulerOptions options = policy_options(SchedulingPolicy::kFcfs);
  options.max_running = 1;
  options.policy.order = QueueOrder::kShortest;
  options.policy.aging_tokens_per_s = 100;
  Scheduler scheduler(options);
  const auto at = [](int64_t ms) { return TimePoint(milliseconds(ms)); };
  scheduler.add(asked("a", 500), at(0));     // as if it came after 5 s
  scheduler.add(asked("b", 100), at(3000));  // 4 s
  scheduler.add(asked("c", 20), at(4700));   // 4.9 s
  scheduler.add(asked("d", 20), at(4900));   // 5.1 s
  EXPECT_EQ(order_of_ends(scheduler), "bcad");
}

/// Steps of a simulated server that always has 8 texts going on beside a long prompt, in seconds: rows of prompts take longer
/// the more tokens are before them, as attention does, and everything varies by 5 %.
struct SimulatedSteps {
  std::vector<double> decoding_s;  // of steps in which texts went on, ascending
  int64_t num_prompts = 0;         // long ones that were computed
};
SimulatedSteps simulate(double slo_s) {
  SchedulerOptions options = policy_options(SchedulingPolicy::kFcfs);
  options.max_running = 10;
  options.token_budget = 2112;
  options.prefill_chunk = 2048;
  options.max_context = 9000;
  options.num_blocks = 2000;
  options.policy.decode_slo_s = slo_s;
  Scheduler scheduler(options);
  std::mt19937 rng(3);
  std::normal_distribution<double> factor(1, 0.05);
  SimulatedSteps result;
  int64_t num_texts = 0, num_longs = 0;
  for (int step = 0; step < 3000; ++step) {
    while (num_texts < 8) {
      Request text = asked("t", 20);
      text.sampling.max_tokens = 200;
      scheduler.add(std::move(text), {});
      ++num_texts;
    }
    if (num_longs == 0) scheduler.add(asked("l", 8000), {}), ++num_longs;
    const StepPlan& plan = scheduler.plan({});
    double step_s = 0.03 + 0.002 * static_cast<double>(plan.num_decode_tokens);
    for (const StepEntry& entry : plan.entries) {
      const double depth = 1 + static_cast<double>(entry.first_token) / 8000;
      if (!entry.is_decode) step_s += 5e-4 * depth * static_cast<double>(entry.num_rows);
    }
    step_s *= factor(rng);
    if (plan.num_decode_tokens > 0) result.decoding_s.push_back(step_s);
    scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>(static_cast<std::size_t>(plan.num_samples), 1)), {});
    scheduler.note_step(plan, step_s);
    for (const auto& sequence : scheduler.take_finished()) {
      const bool is_text = sequence->request.id == "t";
      --(is_text ? num_texts : num_longs);
      result.num_prompts += is_text ? 0 : 1;
    }
  }
  std::ranges::sort(result.decoding_s);
  return result;
}

TEST(DecodeSlo, StepsOfASimulatedServerKeepTheirTime) {
  const auto p99 = [](const SimulatedSteps& steps) { return steps.decoding_s[steps.decoding_s.size() * 99 / 100]; };
  const SimulatedSteps unbounded = simulate(0);
  EXPECT_GT(p99(unbounded), 1.0);
  for (const double slo_s : {0.1, 0.2, 0.4}) {
    const SimulatedSteps bounded = simulate(slo_s);
    EXPECT_LE(p99(bounded), 1.2 * slo_s);
    EXPECT_GE(bounded.decoding_s[bounded.decoding_s.size() / 2], 0.5 * slo_s) << "what there is time for is used";
    EXPECT_GT(bounded.num_prompts, 10);
  }
  EXPECT_GT(simulate(0.001).num_prompts, 10) << "prompts go on where nothing helps";
}

TEST(DecodeSlo, BoundsPromptsOnlyWhileSequencesDecode) {
  SchedulerOptions options = policy_options(SchedulingPolicy::kFcfs);
  options.policy.decode_slo_s = 0.05;
  Scheduler scheduler(options);
  scheduler.add(asked("a", 10), {});
  EXPECT_EQ(step_of(scheduler), "a:0+10");
  scheduler.add(asked("b", 300), {});
  EXPECT_EQ(step_of(scheduler), "a:10+1 b:0+64");
  for (int i = 0; i < 3; ++i) step_of(scheduler);
  ASSERT_EQ(scheduler.take_finished().size(), 1U);  // "a"
  EXPECT_EQ(step_of(scheduler), "b:256+44");
}

}  // namespace
}  // namespace ferry
