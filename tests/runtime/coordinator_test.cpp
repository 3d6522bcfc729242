#include "runtime/coordinator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <future>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "runtime/engine.h"
#include "tests/support/asleep.h"
#include "tests/support/completion.h"
#include "tests/support/expect_error.h"
#include "tests/support/manual_clock.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using test::complete;
using test::complete_all;
using test::Completion;
using test::expect_error;
using test::HeldRequest;
using test::make_request;

/// A tiny model behind a coordinator; start() after the options are set.
class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    options_.model = dir_.path();
    options_.threads = 2;
    options_.memory_bytes = int64_t{64} << 20;
    options_.max_seqs = 6;
    options_.peer_timeout_s = kPatience_s;
  }
  void start(const test::TinyModel& model = test::TinyModel()) {
    model.write(dir_.path());
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_);
    coordinator_.emplace(*engine_, clock_);
  }
  void restart() {
    coordinator_.reset();
    engine_.reset();
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_);
    coordinator_.emplace(*engine_, clock_);
  }

  static constexpr double kPatience_s = 3600;  // with an engine whose thread a test holds

  ManualClock clock_;
  test::TempFolder dir_;
  EngineOptions options_;
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
  std::optional<Coordinator> coordinator_;
};

std::vector<TokenId> tokens_from(TokenId first, std::size_t count) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>((static_cast<std::size_t>(first) + 7 * i) % 97));
  return tokens;
}

Request sampled_request(TokenId first, std::size_t prompt, uint64_t seed) {
  Request request = make_request(tokens_from(first, prompt), 20);
  request.sampling.temperature = 1.5F;
  request.sampling.top_p = 0.9F;
  request.sampling.top_k = 50;
  request.sampling.seed = seed;
  request.sampling.ignore_eos = true;
  return request;
}

TEST_F(CoordinatorTest, LastEventCountsAndTimes) {
  start();
  Request request = make_request(tokens_from(3, 9), 5);
  request.sampling.ignore_eos = true;
  request.arrival = clock_.now() - milliseconds(7);
  Completion completion;
  coordinator_->submit(request, completion.sink([&](const Completion&) { clock_.advance(milliseconds(5)); }));
  completion.wait();
  EXPECT_EQ(completion.tokens.size(), 5U);
  EXPECT_EQ(completion.text, "") << "no tokenizer, no text";
  EXPECT_EQ(completion.last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(completion.last.prompt_tokens, 9);
  EXPECT_EQ(completion.last.completion_tokens, 5);
  EXPECT_FALSE(completion.last.error.has_value());
  EXPECT_EQ(completion.last.timings.queue_ns, 7'000'000);
  EXPECT_EQ(completion.last.timings.first_token_ns, 7'000'000);
  EXPECT_EQ(completion.last.timings.total_ns, 7'000'000 + 4 * 5'000'000) << "one between two tokens";
}

TEST_F(CoordinatorTest, SaysWhatOfAPromptWasThere) {
  options_.prefix_cache_bytes = int64_t{1} << 20;
  start();
  EXPECT_EQ(coordinator_->load().prefix_cache.num_queries, 0);
  Request again = make_request(tokens_from(2, 150), 3);
  again.sampling.ignore_eos = true;
  const auto first = complete(*coordinator_, again);
  std::vector<int32_t> cached;  // by the events of one request
  std::promise<void> ended;
  coordinator_->submit(again, [&](const GenerateEvent& event) {
    cached.push_back(event.cached_tokens);
    if (event.finish_reason != FinishReason::kNone) ended.set_value();
  });
  ended.get_future().wait();
  EXPECT_EQ(first->last.cached_tokens, 0);
  EXPECT_EQ(cached, (std::vector<int32_t>{128, 0, 0, 128})) << "with the first tokens, and at the end";
  again.cache_salt = "a";
  const auto salted = complete(*coordinator_, again);
  EXPECT_EQ(salted->last.cached_tokens, 0);
  EXPECT_EQ(salted->tokens, first->tokens);
  const EngineLoad load = coordinator_->load();
  EXPECT_EQ(load.kv_blocks_used, 0) << "what the cache keeps is free for all";
  EXPECT_EQ(load.prompt_tokens, 3 * 150 - 128);
  EXPECT_EQ(load.prefix_cache.num_queries, 3);
  EXPECT_EQ(load.prefix_cache.num_query_tokens, 3 * 150);
  EXPECT_EQ(load.prefix_cache.num_cached_tokens, 128);
  EXPECT_EQ(load.prefix_cache.num_snapshots, 2);
  EXPECT_EQ(load.prefix_cache.num_idle_blocks, 2 * 128 / 16);
}

TEST_F(CoordinatorTest, SeededSamplingDoesNotDependOnTheBatch) {
  start();
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i)
    requests.push_back(sampled_request(i, static_cast<std::size_t>(1 + 17 * i), static_cast<uint64_t>(i % 4)));
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) alone.push_back(complete(*coordinator_, request)->tokens);
  for (int round = 0; round < 3; ++round) {
    const auto together = complete_all(*coordinator_, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(together[i]->tokens, alone[i]) << "request " << i << ", round " << round;
  }
  Request other_seed = requests[3];
  other_seed.sampling.seed = 99;
  EXPECT_NE(complete(*coordinator_, other_seed)->tokens, alone[3]);
  options_.prefill_chunk = 128;
  options_.token_budget = 70;  // pieces of one quantum, never two prompts' worth
  restart();
  const auto small_steps = complete_all(*coordinator_, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(small_steps[i]->tokens, alone[i]) << "request " << i << " in small steps";
}

// Each request alone and in a batch, greedy and drawn, with drafts and without: the same tokens.
TEST_F(CoordinatorTest, DraftsChangeNoToken) {
  const auto answers = [&](const Speculation& speculation) {
    options_.speculation = speculation;
    coordinator_.reset();
    engine_.reset();
    start();
    std::vector<Request> requests;
    for (int i = 0; i < 6; ++i) {
      Request request =
          sampled_request(static_cast<TokenId>(i), static_cast<std::size_t>(3 + 11 * i), static_cast<uint64_t>(i));
      request.sampling.max_tokens = 60;
      if (i % 2 == 0) request.sampling.temperature = 0;
      requests.push_back(std::move(request));
    }
    std::vector<std::vector<TokenId>> tokens;
    for (const Request& request : requests) tokens.push_back(complete(*coordinator_, request)->tokens);
    const auto together = complete_all(*coordinator_, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i]->tokens, tokens[i]) << "request " << i;
    return tokens;
  };
  const auto plain = answers({Speculation::Source::kNgram, 0});
  for (const int64_t max_drafts : {1, 3, 8}) EXPECT_EQ(answers({Speculation::Source::kNgram, max_drafts}), plain);
}

TEST_F(CoordinatorTest, StopIds) {
  start();
  Request request = make_request(tokens_from(5, 12), 30);
  request.sampling.ignore_eos = true;
  const std::vector<TokenId> free_run = complete(*coordinator_, request)->tokens;
  ASSERT_EQ(free_run.size(), 30U);
  const TokenId stop = free_run[6];
  const auto first = std::find(free_run.begin(), free_run.end(), stop);
  request.sampling.stop_token_ids = {96, stop};
  const auto stopped = complete(*coordinator_, request);
  EXPECT_EQ(stopped->last.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped->tokens, std::vector<TokenId>(free_run.begin(), first + 1)) << "the stop id itself is told";
  EXPECT_EQ(stopped->last.completion_tokens, first + 1 - free_run.begin());

  test::TinyModel model;
  model.generation = {{"eos_token_id", {90, stop}}};
  model.write(dir_.path());
  restart();
  request.sampling.stop_token_ids.clear();
  EXPECT_EQ(complete(*coordinator_, request)->tokens, free_run) << "ignore_eos";
  request.sampling.ignore_eos = false;
  EXPECT_EQ(complete(*coordinator_, request)->tokens, stopped->tokens) << "the checkpoint's stop id";
}

TEST_F(CoordinatorTest, MaxTokensIsClippedToTheContext) {
  options_.max_context = 50;
  start();
  Request request = make_request(tokens_from(1, 43), 1000);
  request.sampling.ignore_eos = true;
  EXPECT_EQ(complete(*coordinator_, request)->tokens.size(), 7U);
  request.sampling.max_tokens = 1;
  EXPECT_EQ(complete(*coordinator_, request)->tokens.size(), 1U);
}

TEST_F(CoordinatorTest, BadRequestsAreRefusedAtTheDoor) {
  options_.max_context = 50;
  start();
  const auto refuse = [&](const Request& request, const std::vector<std::string>& parts) {
    expect_error(
        [&] { coordinator_->submit(request, [](const GenerateEvent&) { ADD_FAILURE() << "an event of a refused request"; }); },
        ErrorCode::kInvalidArgument, parts);
  };
  refuse(make_request({}, 5), {"prompt is empty", "at least one token"});
  refuse(make_request(tokens_from(0, 50), 5), {"prompt", "50", "49"});
  refuse(make_request({3, 97}, 5), {"prompt[1] is 97", "0 to 96"});
  refuse(make_request({-1}, 5), {"prompt[0] is -1", "0 to 96"});
  refuse(make_request({3}, 0), {"max_tokens", "0"});
  Request request = make_request({3}, 5);
  request.sampling.stop_token_ids = {97};
  refuse(request, {"stop_token_ids[0] is 97", "0 to 96"});
  request = make_request({3}, 5);
  request.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  refuse(request, {"temperature", "nan"});
  request = make_request({3}, 5);
  request.sampling.top_p = 0;
  refuse(request, {"top_p", "0"});
  EXPECT_EQ(complete(*coordinator_, make_request({3}, 5))->tokens.size(), 5U) << "the coordinator goes on";
}

TEST_F(CoordinatorTest, IdsBelongToOneOpenRequest) {
  start();
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 6));
  Request second = make_request({5}, 3);
  second.id = HeldRequest::kId;
  const auto ignore = [](const GenerateEvent&) {};
  expect_error([&] { coordinator_->submit(second, ignore); }, ErrorCode::kInvalidArgument,
               {"request_id 'held'", "open request"});
  held.finish();
  complete(*coordinator_, second);
  complete(*coordinator_, second);
}

TEST_F(CoordinatorTest, RequestsWithoutAnIdGetOneThatCannotBeGuessed) {
  start();
  std::set<std::string> ids;
  for (const auto& completion : complete_all(*coordinator_, std::vector<Request>(23, make_request({5}, 3)))) {
    EXPECT_EQ(completion->tokens.size(), 3U);
    EXPECT_EQ(completion->last.request_id.size(), 32U) << "128 bits in hexadecimal digits";
    ids.insert(completion->last.request_id);
  }
  EXPECT_EQ(ids.size(), 23U);
}

/// An id belongs to whoever gave it: another owner may use the same one, and nobody else can end the request by it.
TEST_F(CoordinatorTest, IdsAreAnOwnersOwn) {
  options_.max_seqs = 1;
  start();
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 6));
  Request request = make_request({5}, 3);
  request.id = "job";
  request.owner = "anna";
  Completion annas, bobs;
  const RequestNumber annas_number = coordinator_->submit(request, annas.sink());
  request.owner = "bob";
  EXPECT_NE(coordinator_->submit(request, bobs.sink()), annas_number);
  EXPECT_FALSE(coordinator_->abort("", "job"));
  EXPECT_FALSE(coordinator_->abort("carl", "job"));
  EXPECT_FALSE(coordinator_->abort("anna", HeldRequest::kId));
  EXPECT_TRUE(coordinator_->abort("anna", "job"));
  held.finish();
  EXPECT_EQ(annas.wait().last.finish_reason, FinishReason::kAborted);
  EXPECT_EQ(annas.last.request_id, "job");
  EXPECT_EQ(bobs.wait().last.finish_reason, FinishReason::kLength);
  EXPECT_FALSE(coordinator_->abort(annas_number)) << "it has ended";
}

TEST_F(CoordinatorTest, AbortByNumberReachesExactlyThatRequest) {
  options_.max_seqs = 1;
  start();
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 6));
  Completion first, second;
  const RequestNumber number = coordinator_->submit(make_request({5}, 3), first.sink());
  coordinator_->submit(make_request({5}, 3), second.sink());
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(coordinator_->abort(number));
  held.finish();
  EXPECT_EQ(first.wait().last.finish_reason, FinishReason::kAborted);
  EXPECT_EQ(second.wait().last.finish_reason, FinishReason::kLength);
}

TEST_F(CoordinatorTest, RefusesPlaceholdersOfPictures) {
  start();
  const NamedTokenId image = {.name = "image_token_id", .id = 6};
  SchedulerOptions limits = engine_->scheduler_options();
  EXPECT_TRUE(limits.placeholders.empty()) << "this model cannot see";
  limits.placeholders = {{.name = "vision_start_token_id", .id = 5}, image};
  expect_error(
      [&] {
        validate_request(make_request({7, 8, 6, 7}, 3), limits);
      },
      ErrorCode::kInvalidArgument, {"prompt[2]", "6", "image_token_id", "no picture"});
  validate_request(make_request({7, 8, 4}, 3), limits);
}

TEST_F(CoordinatorTest, Abort) {
  options_.max_seqs = 1;
  start();
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 60));
  Request waiting = make_request({5}, 3);
  waiting.id = "waiting";
  Completion waiting_completion;
  coordinator_->submit(waiting, waiting_completion.sink());
  EXPECT_FALSE(coordinator_->abort("", "nobody"));
  EXPECT_TRUE(coordinator_->abort("", "waiting"));
  EXPECT_TRUE(coordinator_->abort("", HeldRequest::kId));
  const Completion& completion = held.finish();
  EXPECT_EQ(completion.last.finish_reason, FinishReason::kAborted);
  EXPECT_EQ(completion.tokens.size(), 2U);
  EXPECT_EQ(completion.last.completion_tokens, 2);
  EXPECT_EQ(waiting_completion.wait().last.finish_reason, FinishReason::kAborted);
  EXPECT_EQ(waiting_completion.last.completion_tokens, 0);
  EXPECT_EQ(complete(*coordinator_, waiting)->tokens.size(), 3U);
  EXPECT_FALSE(coordinator_->abort("", "waiting")) << "it has ended";
}

TEST_F(CoordinatorTest, Deadlines) {
  options_.max_seqs = 1;
  start();
  Request late = make_request({5}, 3);
  late.deadline = clock_.now() - milliseconds(1);
  const auto never_ran = complete(*coordinator_, late);
  EXPECT_EQ(never_ran->last.finish_reason, FinishReason::kDeadline);
  EXPECT_TRUE(never_ran->tokens.empty());

  Request running = make_request(tokens_from(1, 4), 60);
  running.deadline = clock_.now() + std::chrono::seconds(2);
  HeldRequest held(*coordinator_, running);
  clock_.advance(std::chrono::seconds(2));
  const Completion& completion = held.finish();
  EXPECT_EQ(completion.last.finish_reason, FinishReason::kDeadline);
  EXPECT_EQ(completion.tokens.size(), 2U);
  Request in_time = make_request({5}, 3);
  in_time.deadline = clock_.now() + std::chrono::hours(1);
  EXPECT_EQ(complete(*coordinator_, in_time)->last.finish_reason, FinishReason::kLength);
}

TEST_F(CoordinatorTest, FullQueueRefuses) {
  options_.max_seqs = 1;
  options_.max_waiting = 2;
  start();
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 6));
  Completion first, second;
  coordinator_->submit(make_request({5}, 3), first.sink());
  coordinator_->submit(make_request({6}, 3), second.sink());
  EXPECT_EQ(coordinator_->load().waiting_requests, 2);
  EXPECT_EQ(coordinator_->load().running_requests, 1);
  expect_error([&] { coordinator_->submit(make_request({7}, 3), [](const GenerateEvent&) {}); }, ErrorCode::kResourceExhausted,
               {"queue is full", "2", "--max-waiting 2"});
  held.finish();
  EXPECT_EQ(first.wait().last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(second.wait().last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(complete(*coordinator_, make_request({7}, 3))->tokens.size(), 3U);
}

TEST_F(CoordinatorTest, RequestsThatDoNotFitTheMemoryWaitAndThenFinish) {
  options_.max_context = 256;
  options_.max_seqs = 4;
  start();
  std::vector<Request> requests;
  for (int i = 0; i < 7; ++i) {
    requests.push_back(make_request(tokens_from(i, static_cast<std::size_t>(150 - 20 * i)), 60));
    requests.back().sampling.ignore_eos = true;
  }
  std::vector<std::vector<TokenId>> expected;
  for (const Request& request : requests) expected.push_back(complete(*coordinator_, request)->tokens);

  // Room for all slots, but for little more than one full context.
  const SchedulerOptions roomy = engine_->scheduler_options();
  while (true) {
    options_.memory_bytes = options_.memory_bytes * 9 / 10;
    restart();
    const SchedulerOptions& tight = engine_->scheduler_options();
    ASSERT_GT(tight.max_running, 1);
    if (tight.num_blocks < roomy.num_blocks * 3 / 4) break;
  }
  const int64_t total = engine_->scheduler_options().num_blocks;
  ASSERT_LT(total, 4 * 14) << "four of the requests must not fit";
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 180), 60));
  EXPECT_EQ(coordinator_->load().kv_blocks_used, 12) << "of 180 tokens, not of the 240 that it may become";
  std::vector<std::unique_ptr<Completion>> completions;
  for (const Request& request : requests) {
    completions.push_back(std::make_unique<Completion>());
    coordinator_->submit(request, completions.back()->sink([&](const Completion&) {
      const EngineLoad load = coordinator_->load();
      EXPECT_LE(load.kv_blocks_used, load.kv_blocks_total);
    }));
  }
  held.finish();
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(completions[i]->wait().tokens, expected[i]) << "request " << i;
  EXPECT_EQ(coordinator_->load().kv_blocks_total, total);
}

/// Requests whose prompts fit together and whose answers do not; `num_tokens` each.
std::vector<Request> growing_requests(int32_t num_tokens) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(make_request(tokens_from(i, static_cast<std::size_t>(12 + i)), num_tokens));
    requests.back().sampling.ignore_eos = true;
  }
  return requests;
}

/// Options with which a model has slots for four sequences and blocks for little more than two of 400 tokens.
void make_tight(EngineOptions& options) {
  options.max_context = 512;
  options.max_seqs = 4;
  options.memory_bytes = int64_t{384} << 10;
}

TEST_F(CoordinatorTest, AnswersOfThoseThatGiveWayAreTheSame) {
  make_tight(options_);
  start();
  ASSERT_EQ(engine_->scheduler_options().max_running, 4);
  ASSERT_LT(engine_->scheduler_options().num_blocks, 3 * 26);
  const std::vector<Request> requests = growing_requests(400);
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) alone.push_back(complete(*coordinator_, request)->tokens);
  EXPECT_EQ(coordinator_->load().preemptions, 0);
  for (const int64_t swap_bytes : {int64_t{1} << 30, int64_t{0}}) {
    options_.swap_bytes = swap_bytes;
    restart();
    const auto together = complete_all(*coordinator_, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i]->tokens, alone[i]) << "request " << i;
    coordinator_->drain(milliseconds(0));
    EXPECT_GT(coordinator_->load().preemptions, 0);
    EXPECT_EQ(coordinator_->load().preempted_requests, 0);
    EXPECT_EQ(coordinator_->load().kv_blocks_used, 0);
  }
}

/// Runs `use` on the engine's thread as soon as a request is preempted, while `requests` run; returns their completions.
std::vector<std::unique_ptr<Completion>> run_until_preempted(Coordinator& coordinator, const std::vector<Request>& requests,
                                                             const std::function<void()>& use) {
  std::vector<std::unique_ptr<Completion>> completions;
  const auto is_used = std::make_shared<bool>(false);
  for (const Request& request : requests) {
    completions.push_back(std::make_unique<Completion>());
    coordinator.submit(request, completions.back()->sink([&coordinator, is_used, use](const Completion&) {
      if (*is_used || coordinator.load().preempted_requests == 0) return;
      *is_used = true;
      use();
    }));
  }
  for (const auto& completion : completions) completion->wait();
  EXPECT_TRUE(*is_used) << "nobody was preempted";
  return completions;
}

TEST_F(CoordinatorTest, APreemptedRequestCanBeAborted) {
  make_tight(options_);
  start();
  std::vector<Request> requests = growing_requests(400);
  requests.back().id = "youngest";
  EngineLoad load;
  const auto completions = run_until_preempted(*coordinator_, requests, [&] {
    load = coordinator_->load();
    EXPECT_TRUE(coordinator_->abort("", "youngest"));
  });
  EXPECT_EQ(load.running_requests + load.waiting_requests, 4);
  EXPECT_LE(load.preempted_requests, load.waiting_requests);
  EXPECT_EQ(completions.back()->last.finish_reason, FinishReason::kAborted);
  EXPECT_LT(completions.back()->tokens.size(), 400U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(completions[i]->tokens.size(), 400U) << "request " << i;
}

TEST_F(CoordinatorTest, AFailureReachesPreemptedRequests) {
  make_tight(options_);
  start();
  const auto completions =
      run_until_preempted(*coordinator_, growing_requests(400), [&] { coordinator_->fail("rank 2 is gone"); });
  for (const auto& completion : completions) {
    if (completion->tokens.size() == 400U) continue;
    ASSERT_TRUE(completion->last.error.has_value());
    EXPECT_STREQ(completion->last.error->what(), "rank 2 is gone");
  }
}

TEST_F(CoordinatorTest, DrainWaitsForOpenRequests) {
  start();
  auto held = std::make_unique<HeldRequest>(*coordinator_, make_request(tokens_from(1, 4), 40));
  std::thread drainer([&] { coordinator_->drain(test::kCompletionTimeout); });
  clock_.wait_for_sleepers(1);  // it waits for the request
  held->release();
  drainer.join();
  EXPECT_TRUE(held->completion.is_done());
  EXPECT_EQ(held->completion.wait().last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(held->completion.tokens.size(), 40U);
  expect_error([&] { coordinator_->submit(make_request({7}, 3), [](const GenerateEvent&) {}); }, ErrorCode::kUnavailable,
               {"shutting down"});
  coordinator_->drain(milliseconds(0));
}

TEST_F(CoordinatorTest, DrainAbortsWhatIsNotDoneInTime) {
  options_.max_seqs = 1;
  start();
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 900));
  Completion waiting;
  coordinator_->submit(make_request({5}, 3), waiting.sink());
  // The engine is held beyond the drain's timeout, so both requests are open when it passes.
  std::thread drainer([&] { coordinator_->drain(std::chrono::seconds(30)); });
  clock_.advance_to_next_wake();
  test::await_quiet();  // it has given up, and waits for the last events
  held.release();
  drainer.join();
  EXPECT_TRUE(held.completion.is_done());
  EXPECT_TRUE(waiting.is_done());
  EXPECT_EQ(held.completion.wait().last.finish_reason, FinishReason::kAborted);
  EXPECT_EQ(waiting.wait().last.finish_reason, FinishReason::kAborted);
}

TEST_F(CoordinatorTest, DestructionAbortsOpenRequests) {
  start();
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 900));
  std::thread releaser([&, destroyer = gettid()] {
    test::await_asleep(destroyer);  // it waits for the engine's thread
    held.release();
  });
  coordinator_.reset();
  releaser.join();
  EXPECT_TRUE(held.completion.is_done());
  EXPECT_EQ(held.completion.wait().last.finish_reason, FinishReason::kAborted);
}

TEST_F(CoordinatorTest, FailureEndsEveryRequestAndRefusesLaterOnes) {
  options_.max_seqs = 1;
  start();
  std::promise<void> told;
  coordinator_->set_on_failure([&] { told.set_value(); });
  HeldRequest held(*coordinator_, make_request(tokens_from(1, 4), 60));
  Completion waiting;
  coordinator_->submit(make_request({5}, 3), waiting.sink());
  EXPECT_FALSE(coordinator_->failure().has_value());
  coordinator_->fail("rank 2 is gone");
  held.release();
  for (Completion* completion : {&held.completion, &waiting}) {
    const GenerateEvent& last = completion->wait().last;
    EXPECT_EQ(last.finish_reason, FinishReason::kError);
    ASSERT_TRUE(last.error.has_value());
    EXPECT_EQ(last.error->code(), ErrorCode::kUnavailable);
    EXPECT_STREQ(last.error->what(), "rank 2 is gone");
  }
  EXPECT_EQ(told.get_future().wait_for(test::kCompletionTimeout), std::future_status::ready);
  coordinator_->drain(test::kCompletionTimeout);  // until every request has its last event
  ASSERT_TRUE(coordinator_->failure().has_value());
  EXPECT_EQ(coordinator_->failure()->code(), ErrorCode::kUnavailable);
  expect_error([&] { coordinator_->submit(make_request({7}, 3), [](const GenerateEvent&) {}); }, ErrorCode::kUnavailable,
               {"rank 2 is gone"});
  EXPECT_FALSE(coordinator_->abort("", HeldRequest::kId));
  coordinator_->drain(test::kCompletionTimeout);
}

TEST_F(CoordinatorTest, FailureWhileIdle) {
  start();
  std::promise<void> told;
  coordinator_->set_on_failure([&] { told.set_value(); });
  complete(*coordinator_, make_request({7}, 3));
  coordinator_->fail("rank 1 is gone");
  EXPECT_EQ(told.get_future().wait_for(test::kCompletionTimeout), std::future_status::ready);
  expect_error([&] { coordinator_->submit(make_request({7}, 3), [](const GenerateEvent&) {}); }, ErrorCode::kUnavailable,
               {"rank 1 is gone"});
}

TEST_F(CoordinatorTest, LogitsThatAreNoNumbersEndTheRequestOnly) {
  test::TinyModel model;
  // Token 40's embedding poisons the sequences that contain it.
  for (int64_t i = 0; i < 72; ++i)
    model.tensors.at("model.language_model.embed_tokens.weight").set(40 * 72 + i, std::numeric_limits<float>::quiet_NaN());
  start(model);
  Request good = make_request({3, 4, 5}, 1);
  const std::vector<TokenId> expected = complete(*coordinator_, good)->tokens;
  const auto completions = complete_all(*coordinator_, {good, make_request({3, 40, 5}, 10), good});
  EXPECT_EQ(completions[0]->tokens, expected);
  EXPECT_EQ(completions[2]->tokens, expected);
  const GenerateEvent& last = completions[1]->last;
  EXPECT_EQ(last.finish_reason, FinishReason::kError);
  ASSERT_TRUE(last.error.has_value());
  EXPECT_EQ(last.error->code(), ErrorCode::kInternal);
  test::expect_one_line_with(last.error->what(), {"logits are not finite", "--check-weights"});
  EXPECT_FALSE(coordinator_->failure().has_value());
}

TEST_F(CoordinatorTest, ASinkWithoutMemoryEndsItsRequestOnly) {
  start();
  for (const bool fails_at_end : {false, true}) {
    std::promise<GenerateEvent> ended;
    bool has_failed = false;
    coordinator_->submit(make_request(tokens_from(3, 9), 5), [&](const GenerateEvent& event) {
      const bool is_last = event.finish_reason != FinishReason::kNone;
      if (is_last == fails_at_end && !std::exchange(has_failed, true)) throw std::bad_alloc();
      if (is_last) ended.set_value(event);
    });
    const GenerateEvent last = ended.get_future().get();
    EXPECT_EQ(last.finish_reason, FinishReason::kError);
    if (!fails_at_end) {
      ASSERT_TRUE(last.error.has_value());
      EXPECT_EQ(last.error->code(), ErrorCode::kUnavailable);
    }
  }
  Request next = make_request(tokens_from(3, 9), 5);
  next.sampling.ignore_eos = true;
  EXPECT_EQ(complete(*coordinator_, next)->last.finish_reason, FinishReason::kLength);
  EXPECT_FALSE(coordinator_->failure().has_value());
}

TEST_F(CoordinatorTest, LoadCounts) {
  start();
  complete_all(*coordinator_, {make_request(tokens_from(3, 30), 4), make_request(tokens_from(9, 50), 4)});
  coordinator_->drain(milliseconds(0));
  EXPECT_EQ(coordinator_->load().max_running_requests, 6);
  EXPECT_EQ(coordinator_->load().max_waiting_requests, 256);
  const EngineLoad load = coordinator_->load();
  EXPECT_EQ(load.running_requests, 0);
  EXPECT_EQ(load.waiting_requests, 0);
  EXPECT_EQ(load.kv_blocks_used, 0);
  EXPECT_EQ(load.prompt_tokens, 80);
  EXPECT_GE(load.generated_tokens, 2);
  EXPECT_GE(load.steps, 1);
  EXPECT_GT(load.kv_blocks_total, 0);
}

TEST_F(CoordinatorTest, WhoHearsOfTheFirstTokenFindsItsRequestAmongThoseThatRun) {
  start();
  Completion completion;
  EngineLoad load;
  coordinator_->submit(make_request({5}, 3), completion.sink([&](const Completion& c) {
    if (c.tokens.size() == 1) load = coordinator_->load();
  }));
  completion.wait();
  EXPECT_EQ(load.running_requests, 1);
  EXPECT_EQ(load.waiting_requests, 0);
}

TEST_F(CoordinatorTest, StopStringsNeedATokenizer) {
  start();
  Request request = make_request({3}, 5);
  request.sampling.stop = {"x"};
  expect_error([&] { coordinator_->submit(request, [](const GenerateEvent&) {}); }, ErrorCode::kFailedPrecondition,
               {"tokenizer"});
}

/// The demo checkpoint answers in words.
class DemoCoordinatorTest : public CoordinatorTest {
 protected:
  DemoCoordinatorTest() {
    options_.model = test::source_folder() / "launch" / "demo";
    restart();
    prompt_ = engine_->tokenizer()->encode(
        "<|im_start|>user\nWhat does river mean?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  }
  std::unique_ptr<Completion> ask(const std::vector<std::string>& stop) {
    Request request = make_request(prompt_, 60);
    request.sampling.stop = stop;
    return complete(*coordinator_, request);
  }

  std::vector<TokenId> prompt_;
};

TEST_F(DemoCoordinatorTest, StopStringsEndTheTextAnywhere) {
  const auto free_run = ask({});
  ASSERT_EQ(free_run->last.finish_reason, FinishReason::kStop);
  const std::string text = free_run->text;
  ASSERT_GT(text.size(), 40U);
  // Stop strings of four and of thirteen bytes, wherever tokens begin and end.
  for (const std::size_t length : {4U, 13U}) {
    for (std::size_t at = 0; at + length <= text.size(); at += 5) {
      const std::string stop = text.substr(at, length);
      const auto completion = ask({"never", stop});
      EXPECT_EQ(completion->text, text.substr(0, text.find(stop))) << "stop at '" << stop << "'";
      EXPECT_EQ(completion->last.finish_reason, FinishReason::kStop);
      EXPECT_LE(completion->tokens.size(), free_run->tokens.size());
    }
  }
  EXPECT_EQ(ask({"never"})->text, text);
  EXPECT_EQ(ask({text.substr(text.size() - 3)})->last.finish_reason, FinishReason::kStop);
}

TEST_F(DemoCoordinatorTest, StopStringInTheLastTokenOutranksTheLimit) {
  const auto free_run = ask({});
  Request request = make_request(prompt_, 1);
  request.sampling.stop = {free_run->text.substr(0, 1)};
  const auto completion = complete(*coordinator_, request);
  EXPECT_EQ(completion->last.finish_reason, FinishReason::kStop);
  EXPECT_EQ(completion->text, "");
  EXPECT_EQ(completion->tokens.size(), 1U);
}

// The demo repeats itself here, so that several drafts a step are right, and a stop string ends between them.
TEST_F(DemoCoordinatorTest, StopStringsAmongRightDraftsEndTheTextAtTheSameToken) {
  Request request = make_request(engine_->tokenizer()->encode("The PostgreSQL server"), 48);
  const auto free_run = complete(*coordinator_, request);
  std::vector<std::vector<std::string>> stops{{"never"}};
  for (std::size_t length = 70; length < 130; length += 7) stops.push_back({free_run->text.substr(5, length)});
  const auto answers = [&](int64_t max_drafts) {
    options_.speculation = {Speculation::Source::kNgram, max_drafts};
    restart();
    std::vector<std::pair<std::vector<TokenId>, std::string>> all;
    for (const std::vector<std::string>& stop : stops) {
      request.sampling.stop = stop;
      const auto completion = complete(*coordinator_, request);
      EXPECT_EQ(completion->last.completion_tokens, std::ssize(completion->tokens));
      all.emplace_back(completion->tokens, completion->text);
    }
    return all;
  };
  const auto plain = answers(0);
  EXPECT_EQ(plain[1].second, free_run->text.substr(0, 5));
  const int64_t steps_before = 48 * std::ssize(stops);
  EXPECT_EQ(answers(4), plain);
  EXPECT_LT(coordinator_->load().steps, steps_before / 2) << "no draft was right";
}

TEST_F(DemoCoordinatorTest, BadStopStringsAreRefusedAtTheDoor) {
  for (const std::string& stop : {std::string(), std::string("\xff")}) {
    Request request = make_request(prompt_, 3);
    request.sampling.stop = {stop};
    expect_error([&] { coordinator_->submit(request, [](const GenerateEvent&) {}); }, ErrorCode::kInvalidArgument, {"stop"});
  }
  EXPECT_EQ(ask({})->last.finish_reason, FinishReason::kStop);
}

}  // namespace
}  // namespace ferry
