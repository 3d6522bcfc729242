#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "runtime/schedule/logprobs.h"
#include "tests/support/completion.h"
#include "tests/support/cycle_grammar.h"
#include "tests/support/listed_device.h"
#include "tests/support/prompt_run.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// What SamplingParams ask for beside a temperature, through the engine: the same tokens and the same logarithms, to the bit, in
// any company, with drafts and without, and as the forward pass alone has them.

namespace ferry {
namespace {

bool operator==(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob && a.rank == b.rank;
}

void expect_equal(const std::vector<TokenLogprobs>& told, const std::vector<TokenLogprobs>& expected) {
  ASSERT_EQ(told.size(), expected.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_TRUE(told[i].chosen == expected[i].chosen) << i;
    EXPECT_TRUE(std::ranges::equal(told[i].top, expected[i].top, [](const auto& a, const auto& b) { return a == b; })) << i;
  }
}

std::vector<TokenId> some_prompt(std::size_t size, TokenId first) {
  std::vector<TokenId> prompt(size);
  for (std::size_t i = 0; i < size; ++i) prompt[i] = static_cast<TokenId>((static_cast<std::size_t>(first) + 13 * i * i) % 97);
  return prompt;
}

/// A tiny model of 97 ids.
class SampledRequestTest : public testing::Test {
 protected:
  SampledRequestTest() {
    test::TinyModel().write(dir_.path());
    options_.model = dir_.path();
    options_.threads = 2;
    options_.memory_bytes = int64_t{64} << 20;
    options_.max_seqs = 4;
    options_.speculation = {Speculation::Source::kNgram, 0};
  }
  void start() {
    stop();
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_);
    coordinator_.emplace(*engine_);
  }
  void stop() {
    coordinator_.reset();
    engine_.reset();
    cluster_.reset();
  }
  /// What the logits of all of the prompt's rows say of its tokens.
  std::vector<TokenLogprobs> logprobs_by_hand(const std::vector<TokenId>& prompt, int32_t num_top) {
    stop();
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_, Engine::LogitRows::kAll);
    const std::vector<std::vector<float>> logits = test::EngineDriver(*engine_).prompt(0, prompt);
    std::vector<TokenLogprobs> told;
    for (std::size_t i = 1; i < prompt.size(); ++i) {
      std::vector<SamplerCandidate> scratch(logits[i - 1].size());
      told.push_back(token_logprobs(logits[i - 1], prompt[i], num_top, scratch));
    }
    stop();
    return told;
  }
  void check_scores(const std::vector<std::size_t>& sizes);

  test::TempFolder dir_;
  EngineOptions options_;
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
  std::optional<Coordinator> coordinator_;
};

/// Prompts of these sizes, scored alone and together with a completion each.
void SampledRequestTest::check_scores(const std::vector<std::size_t>& sizes) {
  std::vector<Request> requests;
  std::vector<std::vector<TokenLogprobs>> expected;
  for (const std::size_t size : sizes) {
    requests.push_back(test::make_request(some_prompt(size, static_cast<TokenId>(size)), size % 2 == 0 ? 0 : 3));
    requests.back().sampling.prompt_logprobs = size == sizes.front() ? SamplingParams::kWholeVocabulary : 4;
    requests.back().sampling.ignore_eos = true;
    expected.push_back(logprobs_by_hand(requests.back().prompt, *requests.back().sampling.prompt_logprobs));
  }
  start();
  for (const auto& completions : {test::complete_all(*coordinator_, requests), test::complete_all(*coordinator_, requests)}) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(std::to_string(sizes[i]) + " tokens");
      expect_equal(completions[i]->prompt_logprobs, expected[i]);
      EXPECT_EQ(completions[i]->last.finish_reason, FinishReason::kLength);
      EXPECT_EQ(std::ssize(completions[i]->tokens), requests[i].sampling.max_tokens);
      EXPECT_EQ(completions[i]->last.completion_tokens, requests[i].sampling.max_tokens);
    }
  }
}

TEST_F(SampledRequestTest, PromptsAreScoredAsTheirLogitsSay) {
  check_scores({70, 1, 2, 17, 64, 65, 150});
  options_.prefill_chunk = 128;
  options_.token_budget = 70;  // a quantum a step
  options_.max_seqs = 2;
  check_scores({150, 2, 129});
  options_.speculation = {Speculation::Source::kNgram, 3};
  check_scores({150, 2, 129});
}

TEST_F(SampledRequestTest, PromptsAreScoredOnADevice) {
  if (!test::has_vulkan_device()) GTEST_SKIP() << "no Vulkan device";
  options_.device = {DeviceChoice::Kind::kVulkan, std::nullopt};
  check_scores({70, 3});
}

// A younger sequence that is preempted starts anew, and its prompt is not scored twice.
TEST_F(SampledRequestTest, APreemptedPromptIsScoredOnce) {
  options_.swap_bytes = 0;
  options_.max_context = 256;
  std::vector<Request> requests;
  for (const TokenId first : {3, 4, 5}) {
    requests.push_back(test::make_request(some_prompt(100, first), 100));
    requests.back().sampling.ignore_eos = true;
    requests.back().sampling.prompt_logprobs = 2;
    requests.back().sampling.logprobs = 2;
    requests.back().sampling.repetition_penalty = 1.3F;
  }
  start();
  std::vector<std::unique_ptr<test::Completion>> alone;
  for (const Request& request : requests) alone.push_back(test::complete(*coordinator_, request));
  options_.max_seqs = 3;
  SchedulerOptions limits = engine_->scheduler_options();
  limits.num_blocks = 24;
  limits.num_swap_blocks = 0;
  coordinator_.reset();
  Scheduler scheduler(limits);
  std::vector<Sequence*> sequences;
  for (const Request& request : requests) sequences.push_back(scheduler.add(request, {}));
  std::vector<std::vector<TokenLogprobs>> logprobs(requests.size()), scores(requests.size());
  std::vector<std::unique_ptr<Sequence>> finished;
  while (finished.size() < requests.size()) {
    const StepPlan& plan = scheduler.plan({});
    scheduler.commit(plan, engine_->run_step(plan), {});
    for (const StepEntry& entry : plan.entries) {
      const auto i = static_cast<std::size_t>(std::ranges::find(sequences, entry.sequence) - sequences.begin());
      if (!entry.samples) continue;
      if (scores[i].empty()) scores[i] = std::exchange(entry.sequence->sampled.prompt_logprobs, {});
      EXPECT_TRUE(entry.sequence->sampled.prompt_logprobs.empty());
      logprobs[i].insert(logprobs[i].end(), entry.sequence->sampled.logprobs.begin(), entry.sequence->sampled.logprobs.end());
    }
    for (auto& sequence : scheduler.take_finished()) finished.push_back(std::move(sequence));
  }
  EXPECT_GT(scheduler.load().num_preemptions, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::vector<TokenId>& tokens = sequences[i]->tokens;
    EXPECT_EQ(std::vector<TokenId>(tokens.end() - 100, tokens.end()), alone[i]->tokens);
    expect_equal(scores[i], alone[i]->prompt_logprobs);
    expect_equal(logprobs[i], alone[i]->logprobs);
  }
}

// The grammar lets nothing but a given text through: decoding it has the logarithms that scoring it as a prompt has, as far as
// the recurrent form of the delta rule rounds like the chunk form.
TEST_F(SampledRequestTest, ScoresOfATextAreThoseOfDecodingIt) {
  options_.dtype = DType::kF32;
  const std::vector<TokenId> text = some_prompt(90, 7);
  std::vector<std::vector<TokenId>> sets;
  for (std::size_t i = 1; i < text.size(); ++i) sets.push_back({text[i]});
  start();
  Request scored = test::make_request(text, 0);
  scored.sampling.prompt_logprobs = 3;
  const auto scores = test::complete(*coordinator_, scored);
  Request forced = test::make_request({text[0]}, 200);
  forced.sampling.ignore_eos = true;
  forced.sampling.logprobs = 3;
  forced.grammar = std::make_shared<test::CycleGrammar>(sets, sets.size());
  const auto decoded = test::complete(*coordinator_, forced);
  ASSERT_EQ(decoded->tokens, std::vector<TokenId>(text.begin() + 1, text.end()));
  ASSERT_EQ(scores->prompt_logprobs.size(), decoded->logprobs.size());
  for (std::size_t i = 0; i < decoded->logprobs.size(); ++i) {
    EXPECT_EQ(scores->prompt_logprobs[i].chosen.id, decoded->logprobs[i].chosen.id);
    EXPECT_NEAR(scores->prompt_logprobs[i].chosen.logprob, decoded->logprobs[i].chosen.logprob, 1e-4) << i;
    EXPECT_EQ(scores->prompt_logprobs[i].top[0].id, decoded->logprobs[i].top[0].id) << i;
  }
}

/// One request for each field, greedy and drawn, some of all together.
std::vector<Request> requests_with_fields() {
  std::vector<Request> requests;
  for (int i = 0; i < 18; ++i) {
    Request request = test::make_request(some_prompt(static_cast<std::size_t>(2 + 9 * (i % 9)), static_cast<TokenId>(i)), 40);
    SamplingParams& p = request.sampling;
    p.temperature = i < 9 ? 0.0F : 1.1F;
    p.seed = static_cast<uint64_t>(i);
    p.logprobs = i % 3;
    p.ignore_eos = true;
    const int field = i % 9;
    if (field == 1 || field == 8) p.repetition_penalty = 1.4F;
    if (field == 2 || field == 8) p.presence_penalty = 0.8F;
    if (field == 3 || field == 8) p.frequency_penalty = 0.3F;
    if (field == 4 || field == 8) p.logit_bias = {{5, 3.0F}, {60, -2.0F}};
    if (field == 5) p.allowed_token_ids = {1, 5, 9, 33, 34, 80};
    if (field == 6 || field == 8) p.bad_words = {{5}, {9, 33}, {1, 1}};
    if (field == 7 || field == 8) p.min_p = 0.02F, p.min_tokens = 9, p.stop_token_ids = {5, 60, 7};
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(SampledRequestTest, FieldsGiveTheSameInAnyCompany) {
  const std::vector<Request> requests = requests_with_fields();
  start();
  std::vector<std::unique_ptr<test::Completion>> alone;
  for (const Request& request : requests) alone.push_back(test::complete(*coordinator_, request));
  for (const int64_t max_drafts : {0, 3}) {
    options_.speculation = {Speculation::Source::kNgram, max_drafts};
    start();
    const auto together = test::complete_all(*coordinator_, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i) + ", drafts " + std::to_string(max_drafts));
      EXPECT_EQ(together[i]->tokens, alone[i]->tokens);
      expect_equal(together[i]->logprobs, alone[i]->logprobs);
      ASSERT_EQ(together[i]->logprobs.size(), together[i]->tokens.size());
      for (std::size_t k = 0; k < together[i]->tokens.size(); ++k) {
        EXPECT_EQ(together[i]->logprobs[k].chosen.id, together[i]->tokens[k]);
        EXPECT_EQ(std::ssize(together[i]->logprobs[k].top), *requests[i].sampling.logprobs);
      }
    }
    if (max_drafts > 0) {
      EXPECT_GT(coordinator_->load().drafts.right[0], 0) << "no draft was right";
    }
  }
}

TEST_F(SampledRequestTest, LogprobsAloneChangeNoToken) {
  start();
  for (const float temperature : {0.0F, 0.8F}) {
    Request request = test::make_request(some_prompt(30, 2), 40);
    request.sampling.temperature = temperature;
    const auto plain = test::complete(*coordinator_, request);
    request.sampling.logprobs = SamplingParams::kWholeVocabulary;
    const auto told = test::complete(*coordinator_, request);
    EXPECT_EQ(told->tokens, plain->tokens);
    EXPECT_TRUE(plain->logprobs.empty() && plain->prompt_logprobs.empty());
    ASSERT_EQ(told->logprobs.size(), told->tokens.size());
    for (const TokenLogprobs& logprobs : told->logprobs) {
      if (temperature == 0) {
        EXPECT_EQ(logprobs.chosen.rank, 1);
      }
      ASSERT_EQ(logprobs.top.size(), 97U);
      double total = 0;
      for (const TokenLogprob& token : logprobs.top) total += std::exp(static_cast<double>(token.logprob));
      EXPECT_NEAR(total, 1.0, 1e-5);
    }
  }
}

TEST_F(SampledRequestTest, StopIdsWaitForMinTokens) {
  start();
  Request request = test::make_request(some_prompt(20, 1), 30);
  request.sampling.ignore_eos = true;
  const std::vector<TokenId> free_run = test::complete(*coordinator_, request)->tokens;
  request.sampling.stop_token_ids = {free_run[2]};
  const auto stopped = test::complete(*coordinator_, request);
  EXPECT_EQ(stopped->last.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped->last.stop_id, free_run[2]);
  EXPECT_TRUE(stopped->last.stop.empty());
  ASSERT_LE(stopped->tokens.size(), 3U);
  request.sampling.min_tokens = 10;
  const auto waited = test::complete(*coordinator_, request);
  ASSERT_GE(waited->tokens.size(), 10U);
  EXPECT_EQ(std::find(waited->tokens.begin(), waited->tokens.begin() + 10, free_run[2]), waited->tokens.begin() + 10);
}

TEST_F(SampledRequestTest, ARequestThatForbidsEverythingIsTold) {
  start();
  Request request = test::make_request(some_prompt(20, 1), 30);
  request.sampling.allowed_token_ids = {4};
  request.sampling.bad_words = {{4}};
  const auto failed = test::complete(*coordinator_, request);
  EXPECT_EQ(failed->last.finish_reason, FinishReason::kError);
  ASSERT_TRUE(failed->last.error.has_value());
  EXPECT_EQ(failed->last.error->code(), ErrorCode::kInvalidArgument);
}

/// The demo checkpoint's text.
class SampledTextTest : public SampledRequestTest {
 protected:
  SampledTextTest() {
    options_.model = test::source_folder() / "launch" / "demo";
    start();
    request_ = test::make_request(engine_->tokenizer()->encode("The PostgreSQL server"), 40);
  }
  Request request_;
};

TEST_F(SampledTextTest, StopStringsAreNamedKeptAndHeldBack) {
  const std::string text = test::complete(*coordinator_, request_)->text;
  const std::string stop = text.substr(20, 6);
  const std::size_t first = text.find(stop);
  request_.sampling.stop = {"never", stop};
  const auto cut = test::complete(*coordinator_, request_);
  EXPECT_EQ(cut->text, text.substr(0, first));
  EXPECT_EQ(cut->last.stop, stop);
  EXPECT_FALSE(cut->last.stop_id.has_value());
  request_.sampling.includes_stop = true;
  EXPECT_EQ(test::complete(*coordinator_, request_)->text, text.substr(0, first + stop.size()));
  request_.sampling.min_tokens = static_cast<int32_t>(cut->tokens.size());
  const auto later = test::complete(*coordinator_, request_);
  EXPECT_GT(later->tokens.size(), cut->tokens.size());
  EXPECT_EQ(later->text, text.substr(0, later->text.size()));
}

TEST_F(SampledTextTest, TheTextOfAStopIdMayBeKept) {
  const auto free_run = test::complete(*coordinator_, request_);
  const TokenId id = free_run->tokens[6];
  request_.sampling.stop_token_ids = {id};
  const auto cut = test::complete(*coordinator_, request_);
  request_.sampling.includes_stop = true;
  const auto kept = test::complete(*coordinator_, request_);
  EXPECT_EQ(kept->tokens, cut->tokens);
  EXPECT_EQ(kept->last.stop_id, id);
  EXPECT_EQ(kept->text, cut->text + std::string(engine_->tokenizer()->token_bytes(id)));
}

TEST_F(SampledTextTest, LogprobsComeWithTheirTokensHoweverLongTextIsHeldBack) {
  const auto free_run = test::complete(*coordinator_, request_);
  request_.sampling.stop = {free_run->text + "never"};  // everything may be its beginning
  request_.sampling.logprobs = 1;
  std::vector<std::size_t> sizes;
  std::string text_before_the_end;
  test::Completion completion;
  coordinator_->submit(request_, [&, sink = completion.sink()](const GenerateEvent& event) {
    EXPECT_EQ(event.logprobs.size(), event.token_ids.size());
    if (event.finish_reason == FinishReason::kNone) text_before_the_end += event.text;
    sizes.push_back(event.token_ids.size());
    sink(event);
  });
  completion.wait();
  EXPECT_EQ(completion.text, free_run->text);
  EXPECT_EQ(text_before_the_end, "");
  EXPECT_EQ(completion.logprobs.size(), completion.tokens.size());
  EXPECT_GT(sizes.size(), 30U);
}

}  // namespace
}  // namespace ferry
