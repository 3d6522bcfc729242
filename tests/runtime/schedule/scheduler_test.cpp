#include "runtime/schedule/scheduler.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/cycle_grammar.h"
#include "tests/support/one_choice_each.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using TimePoint = Scheduler::TimePoint;

TimePoint at(int64_t ms) { return TimePoint(milliseconds(ms)); }

SchedulerOptions options_of() {
  SchedulerOptions options;
  options.max_running = 3;
  options.max_waiting = 4;
  options.token_budget = 200;
  options.prefill_chunk = 128;
  options.num_blocks = 40;
  options.block_tokens = 16;
  options.max_context = 500;
  options.vocab_size = 100;
  options.stop_token_ids = {90, 91};
  return options;
}

Request request_of(const std::string& id, int64_t num_prompt, int32_t max_tokens = 5) {
  Request request;
  request.id = id;
  request.prompt.assign(static_cast<std::size_t>(num_prompt), 7);
  request.sampling.max_tokens = max_tokens;
  return request;
}

/// Plans and commits one step in which every entry samples `token`; returns the plan's pieces as "id:first+num" with '*' where
/// it samples.
std::string run_step(Scheduler& scheduler, TimePoint now = at(0), TokenId token = 1) {
  const StepPlan& plan = scheduler.plan(now);
  std::string text;
  for (const StepEntry& entry : plan.entries) {
    text += (text.empty() ? "" : " ") + entry.sequence->request.id + ":" + std::to_string(entry.first_token) + "+" +
            std::to_string(entry.num_rows) + (entry.samples ? "*" : "");
  }
  scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>(static_cast<std::size_t>(plan.num_samples), token)), now);
  return text;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(NextPrefillPiece, CutsAtTheQuantumOnly) {
  EXPECT_EQ(next_prefill_piece(50, 0, 128, 200), 50);    // a short prompt in one piece
  EXPECT_EQ(next_prefill_piece(50, 0, 128, 49), 0);      // or not at all
  EXPECT_EQ(next_prefill_piece(300, 0, 128, 200), 128);  // up to the chunk
  EXPECT_EQ(next_prefill_piece(300, 0, 128, 127), 64);   // whole quanta of what the budget leaves
  EXPECT_EQ(next_prefill_piece(300, 0, 128, 63), 0);
  EXPECT_EQ(next_prefill_piece(300, 256, 128, 44), 44);  // the prompt's end
  EXPECT_EQ(next_prefill_piece(300, 256, 128, 43), 0);
  EXPECT_EQ(next_prefill_piece(30, 0, 7, 100), 7);  // a chunk below 64 is the quantum
  EXPECT_EQ(next_prefill_piece(30, 28, 7, 100), 2);
  EXPECT_EQ(next_prefill_piece(3, 1, 1, 9), 1);
  EXPECT_EQ(next_prefill_piece(65, 0, 128, 200), 65);  // a lone last token is no special case
  EXPECT_EQ(next_prefill_piece(129, 128, 128, 200), 1);
}

TEST(Scheduler, RunsOneRequestFromPromptToLength) {
  Scheduler scheduler(options_of());
  ASSERT_NE(scheduler.add(request_of("a", 150, 3), at(5)), nullptr);
  EXPECT_EQ(scheduler.load().num_waiting, 1);
  EXPECT_EQ(run_step(scheduler, at(10)), "a:0+128");
  EXPECT_EQ(scheduler.load().num_running, 1);
  EXPECT_EQ(scheduler.load().num_used_blocks, 8);  // 128 / 16
  EXPECT_EQ(run_step(scheduler, at(20), 4), "a:128+22*");
  EXPECT_EQ(scheduler.load().num_used_blocks, 10);  // ceil(150 / 16)
  EXPECT_EQ(run_step(scheduler, at(30), 5), "a:150+1*");
  EXPECT_TRUE(scheduler.take_finished().empty());
  EXPECT_EQ(run_step(scheduler, at(40), 6), "a:151+1*");
  EXPECT_EQ(scheduler.load().num_used_blocks, 0);
  EXPECT_EQ(scheduler.load().num_running, 0);

  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  const Sequence& sequence = *finished[0];
  EXPECT_EQ(sequence.finish_reason, FinishReason::kLength);
  EXPECT_EQ((std::vector<TokenId>(sequence.tokens.end() - 3, sequence.tokens.end())), (std::vector<TokenId>{4, 5, 6}));
  EXPECT_EQ(sequence.num_generated(), 3);
  EXPECT_EQ(sequence.arrival, at(5));
  EXPECT_EQ(sequence.first_scheduled, at(10));
  EXPECT_EQ(sequence.first_token, at(20));
  EXPECT_EQ(sequence.finished, at(40));
  EXPECT_TRUE(scheduler.take_finished().empty());
  EXPECT_EQ(run_step(scheduler), "");
}

TEST(Scheduler, PutsDecodesBeforePrefillsInOrderOfAdmission) {
  Scheduler scheduler(options_of());
  scheduler.add(request_of("a", 20), at(0));
  scheduler.add(request_of("b", 160), at(0));
  scheduler.add(request_of("c", 30), at(0));
  EXPECT_EQ(run_step(scheduler), "a:0+20* b:0+128 c:0+30*");
  const StepPlan& plan = scheduler.plan(at(1));
  ASSERT_EQ(plan.entries.size(), 3U);
  EXPECT_EQ(plan.entries[0].sequence->request.id, "a");
  EXPECT_EQ(plan.entries[1].sequence->request.id, "c");
  EXPECT_EQ(plan.entries[2].sequence->request.id, "b");
  EXPECT_EQ(plan.entries[2].first_row, 2);
  EXPECT_EQ(plan.num_rows, 34);
  EXPECT_EQ(plan.num_decode_tokens, 2);
  EXPECT_EQ(plan.num_prefill_tokens, 32);
  EXPECT_EQ(plan.num_samples, 3);
}

TEST(Scheduler, AShortRestMayPassALongPromptThatHasNoRoom) {
  SchedulerOptions options = options_of();
  options.token_budget = 150;
  Scheduler scheduler(options);
  scheduler.add(request_of("a", 150), at(0));
  scheduler.add(request_of("b", 140), at(0));
  scheduler.add(request_of("c", 10), at(0));
  EXPECT_EQ(run_step(scheduler), "a:0+128");  // 22 rows left: b waits and so does c behind it
  EXPECT_EQ(run_step(scheduler), "a:128+22* b:0+128");
  EXPECT_EQ(run_step(scheduler), "a:150+1* b:128+12* c:0+10*");
}

TEST(Scheduler, AdmitsStrictlyInOrder) {
  SchedulerOptions options = options_of();
  options.num_blocks = 10;
  Scheduler scheduler(options);
  scheduler.add(request_of("a", 100, 4), at(0));  // 7 blocks
  scheduler.add(request_of("b", 60, 4), at(0));   // 4 blocks: does not fit beside a
  scheduler.add(request_of("c", 5, 4), at(0));    // would fit, but waits behind b
  EXPECT_EQ(run_step(scheduler), "a:0+100*");
  EXPECT_EQ(run_step(scheduler), "a:100+1*");
  EXPECT_EQ(run_step(scheduler), "a:101+1*");
  EXPECT_EQ(run_step(scheduler), "a:102+1*");
  EXPECT_EQ(run_step(scheduler), "b:0+60* c:0+5*");
}

/// Two blocks a sequence of 20 tokens and one more for each 16: room for one long answer, or several short ones.
SchedulerOptions few_blocks(int64_t num_swap_blocks) {
  SchedulerOptions options = options_of();
  options.num_blocks = 10;
  options.num_swap_blocks = num_swap_blocks;
  return options;
}

/// Runs steps until one is `text`; the number of steps.
int run_until(Scheduler& scheduler, const std::string& text) {
  for (int i = 1; i < 200; ++i) {
    if (run_step(scheduler, at(i)) == text) return i;
  }
  return -1;
}

TEST(Scheduler, BlocksComeAsRowsNeedThem) {
  Scheduler scheduler(options_of());
  scheduler.add(request_of("a", 20, 400), at(0));
  for (int num_tokens = 20; num_tokens < 100; ++num_tokens) {
    run_step(scheduler);
    EXPECT_EQ(scheduler.load().num_used_blocks, (num_tokens + 15) / 16) << num_tokens;
  }
}

TEST(Scheduler, AdmissionLeavesRoomForThoseThatRun) {
  Scheduler scheduler(few_blocks(0));
  scheduler.add(request_of("a", 20, 400), at(0));  // has 2 blocks, grows by 64 tokens: to 6
  scheduler.add(request_of("b", 70, 1), at(0));    // 5 blocks
  scheduler.add(request_of("c", 20, 1), at(0));    // would fit, but waits behind b
  EXPECT_EQ(run_step(scheduler), "a:0+20*");
  scheduler.finish_all(FinishReason::kAborted, at(1));
  scheduler.add(request_of("a", 20, 30), at(2));  // grows to 4 blocks at most
  scheduler.add(request_of("b", 70, 1), at(2));
  EXPECT_EQ(run_step(scheduler), "a:0+20* b:0+70*");
}

TEST(Scheduler, TheYoungestGivesWayAndComesBackAsItWas) {
  Scheduler scheduler(few_blocks(10));
  scheduler.add(request_of("a", 20, 100), at(0));
  Sequence& b = *scheduler.add(request_of("b", 20, 120), at(0));
  EXPECT_EQ(run_step(scheduler), "a:0+20* b:0+20*");
  EXPECT_EQ(run_until(scheduler, "a:80+1*"), 61) << "both have 5 blocks until one needs a sixth";
  EXPECT_EQ(b.state(), RequestState::kPreempted);
  EXPECT_EQ(b.num_computed, 80);
  EXPECT_EQ(b.saved_blocks.size(), 5U);
  EXPECT_TRUE(b.blocks.empty());
  scheduler.add(request_of("c", 5, 3), at(70));
  SchedulerLoad load = scheduler.load();
  EXPECT_EQ(load.num_running, 1);
  EXPECT_EQ(load.num_waiting, 2) << "b and c";
  EXPECT_EQ(load.num_preempted, 1);
  EXPECT_EQ(load.num_preemptions, 1);
  EXPECT_EQ(load.num_used_swap_blocks, 5);
  EXPECT_EQ(run_step(scheduler, at(71)), "a:81+1*") << "c waits behind b";
  EXPECT_GT(run_until(scheduler, "b:80+1* c:0+5*"), 0) << "a ended";
  EXPECT_EQ(b.state(), RequestState::kDecoding);
  load = scheduler.load();
  EXPECT_EQ(load.num_preempted, 0);
  EXPECT_EQ(load.num_used_swap_blocks, 0);
}

TEST(Scheduler, ThePlanSaysWhatIsSavedAndRestored) {
  Scheduler scheduler(few_blocks(10));
  scheduler.add(request_of("a", 20, 100), at(0));
  Sequence& b = *scheduler.add(request_of("b", 20, 120), at(0));
  std::vector<BlockCopy> saved, restored;
  std::vector<int32_t> before, swapped;
  for (int i = 0; i < 150 && restored.empty(); ++i) {
    (saved.empty() ? before : swapped) = saved.empty() ? b.blocks : b.saved_blocks;
    const StepPlan& plan = scheduler.plan(at(i));
    if (saved.empty()) saved = plan.saved_blocks;
    restored = plan.restored_blocks;
    scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>(static_cast<std::size_t>(plan.num_samples), 1)), at(i));
  }
  ASSERT_EQ(saved.size(), 5U);
  ASSERT_EQ(swapped.size(), 5U);
  ASSERT_EQ(restored.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(saved[i], (BlockCopy{before[i], swapped[i]}));
    EXPECT_EQ(restored[i], (BlockCopy{swapped[i], b.blocks[i]}));
  }
}

TEST(Scheduler, WhatCannotBeSavedIsComputedAnew) {
  Scheduler scheduler(few_blocks(4));
  scheduler.add(request_of("a", 20, 100), at(0));
  Sequence& b = *scheduler.add(request_of("b", 20, 120), at(0));
  EXPECT_EQ(run_step(scheduler), "a:0+20* b:0+20*");
  EXPECT_EQ(run_until(scheduler, "a:80+1*"), 61);
  EXPECT_EQ(b.state(), RequestState::kPreempted);
  EXPECT_EQ(b.num_computed, 0);
  EXPECT_EQ(b.num_generated(), 61);
  EXPECT_GT(run_until(scheduler, "b:0+20"), 0) << "as a ended: before, there is room for its prompt, but not for its answer";
  EXPECT_EQ(b.state(), RequestState::kPrefilling);
  const StepPlan& plan = scheduler.plan(at(300));
  ASSERT_EQ(plan.entries.size(), 1U);
  EXPECT_EQ(plan.entries[0].first_token, 20);
  EXPECT_EQ(plan.entries[0].num_rows, 61) << "all that is known, in one piece of the recurrent form";
  EXPECT_TRUE(plan.entries[0].is_decode && plan.entries[0].samples);
  EXPECT_EQ(plan.num_prefill_tokens, 61);
}

TEST(Scheduler, APreemptedSequenceMayEnd) {
  for (const bool is_late : {false, true}) {
    Scheduler scheduler(few_blocks(10));
    scheduler.add(request_of("a", 20, 100), at(0));
    Request request = request_of("b", 20, 120);
    request.deadline = at(500);
    Sequence& b = *scheduler.add(std::move(request), at(0));
    run_until(scheduler, "a:80+1*");
    ASSERT_EQ(b.state(), RequestState::kPreempted);
    if (!is_late) scheduler.abort(b);
    run_step(scheduler, at(is_late ? 500 : 100));
    const auto finished = scheduler.take_finished();
    ASSERT_EQ(finished.size(), 1U);
    EXPECT_EQ(finished[0]->finish_reason, is_late ? FinishReason::kDeadline : FinishReason::kAborted);
    EXPECT_EQ(finished[0]->num_generated(), 61);
    EXPECT_EQ(scheduler.load().num_used_swap_blocks, 0);
    EXPECT_EQ(scheduler.load().num_used_blocks, 6);
  }
}

TEST(RequestState, GoesOnlyForward) {
  using enum RequestState;
  const std::vector<RequestState> all{kQueued, kWaitingForMedia, kPrefilling, kDecoding, kPreempted, kFinished};
  for (const RequestState from : all) {
    EXPECT_FALSE(may_become(from, from));
    EXPECT_FALSE(may_become(kFinished, from));
    EXPECT_FALSE(may_become(from, kQueued));
    EXPECT_EQ(may_become(from, kFinished), from != kFinished);
  }
  EXPECT_TRUE(may_become(kPreempted, kDecoding) && may_become(kDecoding, kPreempted));
  EXPECT_FALSE(may_become(kQueued, kDecoding) || may_become(kQueued, kPreempted));
}

TEST(Scheduler, LimitsSlotsAndQueue) {
  Scheduler scheduler(options_of());
  for (const char* id : {"a", "b", "c", "d"}) EXPECT_NE(scheduler.add(request_of(id, 9), at(0)), nullptr);
  EXPECT_EQ(scheduler.add(request_of("e", 9), at(0)), nullptr);
  EXPECT_EQ(run_step(scheduler), "a:0+9* b:0+9* c:0+9*");
  EXPECT_EQ(scheduler.load().num_waiting, 1);
  EXPECT_NE(scheduler.add(request_of("e", 9), at(0)), nullptr);
}

TEST(Scheduler, StopsAtStopIds) {
  Scheduler scheduler(options_of());
  Request own = request_of("own", 4);
  own.sampling.stop_token_ids = {42};
  own.sampling.ignore_eos = true;
  scheduler.add(request_of("eos", 4), at(0));
  scheduler.add(std::move(own), at(0));
  run_step(scheduler, at(1), 91);
  auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->request.id, "eos");
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kStop);
  EXPECT_TRUE(finished[0]->ends_with_stop_id);
  EXPECT_EQ(finished[0]->tokens.back(), 91);
  run_step(scheduler, at(2), 42);
  finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->request.id, "own");
  EXPECT_EQ(finished[0]->num_generated(), 2);
}

TEST(Scheduler, KnowsWhoseStopIdItWas) {
  for (const bool ignores_eos : {false, true}) {
    for (const TokenId id : {42, 90}) {
      Scheduler scheduler(options_of());
      Request request = request_of("a", 4);
      request.sampling.stop_token_ids = {42, 90};
      request.sampling.ignore_eos = ignores_eos;
      scheduler.add(std::move(request), at(0));
      run_step(scheduler, at(1), id);
      const auto finished = scheduler.take_finished();
      ASSERT_EQ(finished.size(), 1U);
      EXPECT_TRUE(finished[0]->ends_with_stop_id);
      EXPECT_EQ(finished[0]->own_stop_id, id == 42 || ignores_eos ? std::optional(id) : std::nullopt)
          << id << ": the checkpoint's come first";
    }
  }
}

TEST(Scheduler, APromptThatIsOnlyScoredEndsWithoutASample) {
  Scheduler scheduler(options_of());
  Request request = request_of("a", 140, 0);
  request.sampling.prompt_logprobs = 0;
  EXPECT_NO_THROW(validate_request(request, options_of()));
  scheduler.add(std::move(request), at(0));
  scheduler.add(request_of("b", 4), at(0));
  EXPECT_EQ(run_step(scheduler, at(1)), "a:0+128 b:0+4*");
  EXPECT_TRUE(scheduler.take_finished().empty());
  EXPECT_EQ(run_step(scheduler, at(2)), "b:4+1* a:128+12");
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kLength);
  EXPECT_EQ(finished[0]->num_generated(), 0);
  EXPECT_EQ(scheduler.load().num_running, 1);
}

TEST(Scheduler, AGrammarsEndIsAStop) {
  Scheduler scheduler(options_of());
  Request request = request_of("a", 4, 3);
  const auto grammar = std::make_shared<test::CycleGrammar>(std::vector<std::vector<TokenId>>{{}}, 3);
  request.grammar = grammar;
  scheduler.add(std::move(request), at(0));
  for (TokenId token = 1; token <= 3; ++token) {
    EXPECT_TRUE(scheduler.take_finished().empty());
    grammar->accept(token);  // the sampler's doing
    run_step(scheduler, at(token), token);
  }
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kStop) << "though the limit is reached as well";
  EXPECT_EQ(finished[0]->num_generated(), 3);
}

TEST(Scheduler, AStopIdInTheLastTokenIsAStop) {
  Scheduler scheduler(options_of());
  scheduler.add(request_of("a", 4, 1), at(0));
  run_step(scheduler, at(1), 90);
  EXPECT_EQ(scheduler.take_finished().at(0)->finish_reason, FinishReason::kStop);
}

TEST(Scheduler, NoTokenEndsTheSequenceWithAnError) {
  Scheduler scheduler(options_of());
  scheduler.add(request_of("a", 4), at(0));
  run_step(scheduler, at(1), -1);
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kError);
  EXPECT_EQ(finished[0]->num_generated(), 0);
  EXPECT_EQ(scheduler.load().num_used_blocks, 0);
}

SchedulerOptions options_with_cache() {
  SchedulerOptions options = options_of();
  options.token_budget = 400;
  options.prefix_cache = {.is_on = true, .num_snapshots = 8, .snapshot_bytes = 1};
  return options;
}

/// Tokens of the prompt that a request begins with, which is over after a step that chose `token`.
int64_t num_cached_of(Scheduler& scheduler, int64_t num_prompt, TokenId token) {
  scheduler.add(request_of("a", num_prompt, 1), at(0));
  while (true) {
    const StepPlan& plan = scheduler.plan(at(0));
    const int64_t num_cached = plan.entries.front().sequence->num_cached;
    const std::vector<TokenId> tokens(static_cast<std::size_t>(plan.num_samples), token);
    scheduler.commit(plan, test::OneChoiceEach(tokens), at(0));
    scheduler.check_cache();
    if (!scheduler.take_finished().empty()) return num_cached;
  }
}

TEST(Scheduler, WhatFailedLeavesNothingInThePrefixCache) {
  Scheduler scheduler(options_with_cache());
  EXPECT_EQ(num_cached_of(scheduler, 100, kNoToken), 0);
  EXPECT_EQ(scheduler.load().prefix_cache.num_snapshots, 0);
  EXPECT_EQ(num_cached_of(scheduler, 300, kNoToken), 0) << "of several steps";
  EXPECT_EQ(scheduler.load().prefix_cache.num_snapshots, 0);
  EXPECT_EQ(scheduler.load().prefix_cache.num_units, 0) << "the first steps had been taken in";
  EXPECT_EQ(num_cached_of(scheduler, 300, 1), 0);
  EXPECT_EQ(num_cached_of(scheduler, 300, 1), 256);
}

/// So no prompt fails twice for what is kept, however it came there.
TEST(Scheduler, WhatARequestThatFailedBeganWithIsForgotten) {
  Scheduler scheduler(options_with_cache());
  EXPECT_EQ(num_cached_of(scheduler, 300, 1), 0);
  EXPECT_EQ(num_cached_of(scheduler, 300, kNoToken), 256);
  EXPECT_EQ(num_cached_of(scheduler, 300, 1), 0);
}

TEST(Scheduler, ARequestThatForbidsAllTokensCostsNobodyItsPrefix) {
  Scheduler scheduler(options_with_cache());
  EXPECT_EQ(num_cached_of(scheduler, 300, 1), 0);
  Sequence* const sequence = scheduler.add(request_of("b", 300, 1), at(0));
  sequence->sampled.failure = Error(ErrorCode::kInvalidArgument, "no token is left to choose");
  run_step(scheduler, at(0), kNoToken);
  ASSERT_EQ(scheduler.take_finished().size(), 1U);
  EXPECT_EQ(num_cached_of(scheduler, 300, 1), 256);
}

TEST(Scheduler, AbortFreesMemoryForTheSamePlan) {
  SchedulerOptions options = options_of();
  options.max_running = 1;
  Scheduler scheduler(options);
  Sequence* const a = scheduler.add(request_of("a", 9), at(0));
  Sequence* const b = scheduler.add(request_of("b", 9), at(0));
  scheduler.add(request_of("c", 9), at(0));
  run_step(scheduler);
  scheduler.abort(*a);
  scheduler.abort(*b);
  const StepPlan& plan = scheduler.plan(at(3));
  ASSERT_EQ(plan.finished.size(), 2U);
  EXPECT_EQ(plan.finished[0]->request.id, "a");
  EXPECT_EQ(plan.finished[0]->finish_reason, FinishReason::kAborted);
  EXPECT_EQ(plan.finished[1]->request.id, "b");
  ASSERT_EQ(plan.entries.size(), 1U);
  EXPECT_EQ(plan.entries[0].sequence->request.id, "c");
  EXPECT_EQ(scheduler.take_finished().size(), 2U);
}

TEST(Scheduler, DeadlinesEndRunningAndWaitingRequests) {
  SchedulerOptions options = options_of();
  options.max_running = 1;
  Scheduler scheduler(options);
  for (const auto& [id, deadline] : {std::pair{"a", 20}, std::pair{"b", 10}, std::pair{"c", 90}}) {
    Request request = request_of(id, 9, 50);
    request.deadline = at(deadline);
    scheduler.add(std::move(request), at(0));
  }
  EXPECT_EQ(run_step(scheduler, at(9)), "a:0+9*");
  EXPECT_EQ(run_step(scheduler, at(19)), "a:9+1*");
  EXPECT_EQ(run_step(scheduler, at(20)), "c:0+9*");
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 2U);
  EXPECT_EQ(finished[0]->request.id, "b");
  EXPECT_FALSE(finished[0]->first_scheduled.has_value());
  EXPECT_EQ(finished[1]->request.id, "a");
  EXPECT_EQ(finished[1]->finish_reason, FinishReason::kDeadline);
  EXPECT_EQ(finished[1]->num_generated(), 2);
}

TEST(Scheduler, TheOwnerMayEndASequence) {
  Scheduler scheduler(options_of());
  scheduler.add(request_of("a", 9, 2), at(0));
  const StepPlan& plan = scheduler.plan(at(1));
  Sequence& sequence = *plan.entries.at(0).sequence;
  scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>{3}), at(1));
  scheduler.finish(sequence, FinishReason::kStop, at(2));
  EXPECT_EQ(scheduler.load().num_used_blocks, 0);
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].get(), &sequence);
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kStop);
  EXPECT_FALSE(finished[0]->ends_with_stop_id);
}

TEST(Scheduler, AStopStringInTheLastTokenReplacesTheReason) {
  Scheduler scheduler(options_of());
  scheduler.add(request_of("a", 9, 1), at(0));
  const StepPlan& plan = scheduler.plan(at(1));
  Sequence& sequence = *plan.entries.at(0).sequence;
  scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>{3}), at(1));
  ASSERT_EQ(sequence.finish_reason, FinishReason::kLength);
  scheduler.finish(sequence, FinishReason::kStop, at(2));
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kStop);
}

SchedulerOptions options_with_drafts() {
  SchedulerOptions options = options_of();
  options.max_drafts = 4;
  return options;
}

/// Commits a plan of one entry that chose `tokens`.
void commit_tokens(Scheduler& scheduler, const StepPlan& plan, const std::vector<TokenId>& tokens) {
  const std::vector<int32_t> counts{static_cast<int32_t>(tokens.size())};
  scheduler.commit(plan, {.tokens = tokens, .num_tokens = counts}, at(2));
}

TEST(Scheduler, RightDraftsAreReplayedByTheNextStep) {
  Scheduler scheduler(options_with_drafts());
  Sequence& sequence = *scheduler.add(request_of("a", 4, 20), at(0));
  const StepPlan& plan = scheduler.plan(at(0));
  EXPECT_TRUE(plan.entries.at(0).begins);
  EXPECT_FALSE(plan.entries.at(0).is_decode);
  commit_tokens(scheduler, plan, {1});
  scheduler.propose(sequence, std::vector<TokenId>{5, 6, 7});

  scheduler.plan(at(1));
  const StepEntry first = plan.entries.at(0);
  EXPECT_TRUE(first.is_decode && !first.begins);
  EXPECT_EQ(first.first_token, 4);
  EXPECT_EQ(first.num_rows, 4);
  EXPECT_EQ(first.num_drafts, 3);
  EXPECT_EQ(first.num_logits(), 4);
  EXPECT_EQ(first.num_replayed, 0);
  EXPECT_EQ(plan.num_rows, 4);
  EXPECT_EQ(plan.num_decode_tokens, 1);
  EXPECT_EQ(plan.num_drafts, 3);
  commit_tokens(scheduler, plan, {5, 6, 30});  // two right, then another token
  EXPECT_EQ(sequence.num_computed, 7);
  EXPECT_EQ(sequence.num_new, 3);
  EXPECT_EQ((std::vector<TokenId>(sequence.tokens.end() - 4, sequence.tokens.end())), (std::vector<TokenId>{1, 5, 6, 30}));

  scheduler.plan(at(2));
  const StepEntry second = plan.entries.at(0);
  EXPECT_EQ(second.first_token, 7);
  EXPECT_EQ(second.num_rows, 1) << "nobody proposed";
  EXPECT_EQ(second.num_replayed, 2);
  commit_tokens(scheduler, plan, {31});
  EXPECT_EQ(sequence.num_replayed, 0);
}

TEST(Scheduler, DraftsLeaveRoomForPromptsAndStayWithinTheLimit) {
  SchedulerOptions options = options_with_drafts();
  options.token_budget = 3 + 64 + 3;
  options.prefill_chunk = 64;
  Scheduler scheduler(options);
  Sequence& a = *scheduler.add(request_of("a", 4, 20), at(0));
  Sequence& b = *scheduler.add(request_of("b", 4, 3), at(0));
  run_step(scheduler);
  scheduler.add(request_of("c", 64, 20), at(0));
  scheduler.propose(a, std::vector<TokenId>{5, 6, 7});
  scheduler.propose(b, std::vector<TokenId>{5, 6, 7});
  EXPECT_EQ(run_step(scheduler), "a:4+4* b:4+2* c:0+64*") << "b may grow by two more; four rows beside the decodes and c";
  EXPECT_EQ(run_step(scheduler), "a:5+1* b:5+1* c:64+1*") << "all drafts were wrong";
}

TEST(Scheduler, WhatWasChosenBehindTheEndIsDropped) {
  for (const auto& [max_tokens, chosen, kept, reason] :
       {std::tuple<int32_t, std::vector<TokenId>, int64_t, FinishReason>{20, {5, 91, 6}, 3, FinishReason::kStop},
        {4, {5, 6, 7}, 4, FinishReason::kLength},
        {20, {5, -1}, 2, FinishReason::kError}}) {
    Scheduler scheduler(options_with_drafts());
    Sequence& sequence = *scheduler.add(request_of("a", 4, max_tokens), at(0));
    run_step(scheduler);
    scheduler.propose(sequence, std::vector<TokenId>{5, 91, 6, 7});
    commit_tokens(scheduler, scheduler.plan(at(1)), chosen);
    const auto finished = scheduler.take_finished();
    ASSERT_EQ(finished.size(), 1U);
    EXPECT_EQ(finished[0]->finish_reason, reason);
    EXPECT_EQ(finished[0]->num_generated(), kept);
    EXPECT_EQ(scheduler.load().num_used_blocks, 0);
  }
}

TEST(Scheduler, TokensBehindAStopStringGo) {
  Scheduler scheduler(options_with_drafts());
  Sequence& sequence = *scheduler.add(request_of("a", 4, 20), at(0));
  run_step(scheduler);
  scheduler.propose(sequence, std::vector<TokenId>{5, 6});
  commit_tokens(scheduler, scheduler.plan(at(1)), {5, 6, 90});
  ASSERT_TRUE(sequence.ends_with_stop_id);
  scheduler.finish(sequence, FinishReason::kStop, at(3), 2);
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kStop);
  EXPECT_EQ(finished[0]->tokens.back(), 5);
  EXPECT_FALSE(finished[0]->ends_with_stop_id);
}

TEST(Scheduler, FinishAllWorksInTheMiddleOfAStep) {
  Scheduler scheduler(options_of());
  for (const char* id : {"a", "b", "c", "d"}) scheduler.add(request_of(id, 9), at(0));
  scheduler.plan(at(1));
  scheduler.finish_all(FinishReason::kError, at(2));
  EXPECT_EQ(scheduler.take_finished().size(), 4U);
  EXPECT_EQ(scheduler.load().num_used_blocks, 0);
  EXPECT_EQ(scheduler.load().num_running + scheduler.load().num_waiting, 0);
  scheduler.add(request_of("e", 9), at(3));
  EXPECT_EQ(run_step(scheduler), "e:0+9*");
}

TEST(Scheduler, ClipsMaxTokensToTheContext) {
  Scheduler scheduler(options_of());
  scheduler.add(request_of("a", 497, 1000), at(0));
  std::vector<std::unique_ptr<Sequence>> finished;
  for (int i = 0; finished.empty() && i < 20; ++i) {
    run_step(scheduler);
    finished = scheduler.take_finished();
  }
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0]->num_generated(), 3);
  EXPECT_EQ(finished[0]->finish_reason, FinishReason::kLength);
}

TEST(ValidateRequest, NamesWhatItRefuses) {
  const SchedulerOptions options = options_of();
  EXPECT_NO_THROW(validate_request(request_of("a", 499, 1'000'000), options));
  EXPECT_EQ(error_of([&] { validate_request(request_of("a", 0), options); }), "prompt is empty; allowed: at least one token");
  const std::string too_long = error_of([&] { validate_request(request_of("a", 500), options); });
  EXPECT_NE(too_long.find("500 tokens; allowed: at most 499"), std::string::npos) << too_long;
  SchedulerOptions small = options;
  small.num_blocks = 3;
  EXPECT_NO_THROW(validate_request(request_of("a", 47), small));
  EXPECT_NE(error_of([&] { validate_request(request_of("a", 48), small); }).find("at most 47"), std::string::npos);
  small.memory_for_more = "--memory 7MiB holds 500";
  EXPECT_NE(error_of([&] { validate_request(request_of("a", 48), small); }).find("; --memory 7MiB holds 500)"),
            std::string::npos);
  for (const TokenId bad : {-1, 100}) {
    Request request = request_of("a", 5);
    request.prompt[3] = bad;
    EXPECT_EQ(error_of([&] { validate_request(request, options); }),
              "prompt[3] is " + std::to_string(bad) + "; allowed: token ids 0 to 99");
    request = request_of("a", 5);
    request.sampling.stop_token_ids = {99, bad};
    EXPECT_NE(error_of([&] { validate_request(request, options); }).find("stop_token_ids"), std::string::npos);
  }
  Request request = request_of("a", 5, 0);
  EXPECT_NE(error_of([&] { validate_request(request, options); }).find("max_tokens is 0"), std::string::npos);
}

TEST(SchedulerOptions, AreChecked) {
  const auto error_with = [](auto change) {
    SchedulerOptions options = options_of();
    change(options);
    return error_of([&] { Scheduler scheduler(options); });
  };
  EXPECT_EQ(error_with([](auto& o) { o.token_budget = 3 + 64; }), "accepted");
  EXPECT_NE(error_with([](auto& o) { o.token_budget = 3 + 63; }).find("token_budget is 66; allowed: 67"), std::string::npos);
  EXPECT_EQ(error_with([](auto& o) { o.prefill_chunk = 63; }), "accepted");
  EXPECT_NE(error_with([](auto& o) { o.prefill_chunk = 100; }).find("prefill_chunk is 100"), std::string::npos);
  EXPECT_NE(error_with([](auto& o) { o.prefill_chunk = 0; }).find("prefill_chunk is 0"), std::string::npos);
  EXPECT_NE(error_with([](auto& o) { o.max_running = 0; }).find("max_running"), std::string::npos);
  EXPECT_NE(error_with([](auto& o) { o.max_waiting = 0; }).find("max_waiting"), std::string::npos);
  EXPECT_NE(error_with([](auto& o) { o.num_blocks = 0; }).find("num_blocks"), std::string::npos);
  EXPECT_NE(error_with([](auto& o) { o.block_tokens = -16; }).find("block_tokens"), std::string::npos);
  EXPECT_NE(error_with([](auto& o) { o.max_context = 0; }).find("max_context"), std::string::npos);
  EXPECT_NE(error_with([](auto& o) { o.vocab_size = 0; }).find("vocab_size"), std::string::npos);
}

TEST(SchedulerDeathTest, ChecksItsProtocol) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Scheduler scheduler(options_of());
  EXPECT_DEATH(scheduler.add(request_of("a", 500), at(0)), "not validated");
  scheduler.add(request_of("a", 9), at(0));
  const StepPlan& plan = scheduler.plan(at(0));
  EXPECT_DEATH(scheduler.plan(at(0)), "not committed");
  EXPECT_DEATH(scheduler.commit(plan, {}, at(0)), "0 vs 1");
  EXPECT_DEATH(scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>{100}), at(0)), "sampled id 100 of 100");
  EXPECT_DEATH(scheduler.finish(*plan.entries[0].sequence, FinishReason::kStop, at(0)), "under way");
  scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>{1}), at(0));
  EXPECT_DEATH(scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>{1}), at(0)), "plan of step");
}

TEST(Scheduler, APromptThatCouldNotBeScoredEndsWithAnError) {
  Scheduler scheduler(options_of());
  for (const bool has_failed : {false, true}) {
    Sequence* const scored = scheduler.add(request_of("a", 10, 0), at(0));
    if (has_failed) scored->sampled.failure = Error(ErrorCode::kUnavailable, "no memory");
    EXPECT_EQ(run_step(scheduler), "a:0+10");
    const auto finished = scheduler.take_finished();
    ASSERT_EQ(finished.size(), 1U);
    EXPECT_EQ(finished.front()->finish_reason, has_failed ? FinishReason::kError : FinishReason::kLength);
  }
}

}  // namespace
}  // namespace ferry
