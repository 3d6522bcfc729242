#include <gtest/gtest.h>

#include "runtime/server/vllm/engine_answer.h"
#include "runtime/server/vllm/inference_answer.h"

namespace ferry::vllm {
namespace {

namespace wire = ::vllm::grpc::engine;

std::vector<Request> requests_of(std::size_t num_choices, std::optional<int32_t> prompt_logprobs = std::nullopt) {
  Request request;
  request.sampling.prompt_logprobs = prompt_logprobs;
  request.prompt = {7, 8, 9};
  return std::vector<Request>(num_choices, request);
}

GenerateEvent event_of(std::vector<TokenId> ids, const std::string& text, std::vector<TokenLogprobs> logprobs = {}) {
  GenerateEvent event;
  event.token_ids = std::move(ids);
  event.text = text;
  event.logprobs = std::move(logprobs);
  return event;
}

GenerateEvent end_of(FinishReason reason, int32_t num_tokens) {
  GenerateEvent event{.finish_reason = reason};
  event.completion_tokens = num_tokens;
  event.cached_tokens = 2;
  return event;
}

const TokenLogprobs kLikely{.chosen = {.id = 4, .logprob = -0.5F, .rank = 1}, .top = {{4, -0.5F, 1}, {6, -1.25F, 2}}};
const TokenLogprobs kOther{.chosen = {.id = 5, .logprob = -2.0F, .rank = 3}, .top = {{4, -0.25F, 1}, {6, -1.5F, 2}}};

std::vector<TokenId> ids_of(const google::protobuf::RepeatedField<uint32_t>& ids) { return {ids.begin(), ids.end()}; }

TEST(VllmEngineAnswer, AStreamTellsWhatIsNewAndThenAll) {
  EngineAnswer answer(/*streams=*/true);
  answer.begin(requests_of(1));
  EXPECT_FALSE(answer.next());
  answer.add(0, event_of({4}, "a", {kLikely}));
  wire::GenerateStreamChunk chunk = answer.next()->chunk();
  EXPECT_EQ(ids_of(chunk.token_ids()), (std::vector<TokenId>{4}));
  EXPECT_EQ(chunk.prompt_tokens(), 3U);
  EXPECT_EQ(chunk.output_logprobs().token_logprobs(0), -0.5F);
  EXPECT_EQ(ids_of(chunk.output_logprobs().top_logprobs(0).token_ids()), (std::vector<TokenId>{4, 6}));
  EXPECT_FALSE(answer.next());
  answer.add(0, event_of({5}, "b", {kOther}));
  answer.add(0, event_of({6}, ""));
  GenerateEvent last = end_of(FinishReason::kStop, 3);
  last.stop = "b";
  answer.add(0, last);
  chunk = answer.next()->chunk();
  EXPECT_EQ(ids_of(chunk.token_ids()), (std::vector<TokenId>{5, 6})) << "what waits is one message";
  EXPECT_EQ(chunk.completion_tokens(), 3U) << "of all so far";
  const wire::GenerateComplete complete = answer.next()->complete();
  EXPECT_EQ(ids_of(complete.output_ids()), (std::vector<TokenId>{4, 5, 6}));
  EXPECT_EQ(complete.finish_reason(), "stop");
  EXPECT_EQ(complete.matched_stop_str(), "b");
  EXPECT_EQ(complete.prompt_tokens(), 3U);
  EXPECT_EQ(complete.completion_tokens(), 3U);
  EXPECT_EQ(complete.cached_tokens(), 2U);
  EXPECT_FALSE(complete.has_output_logprobs()) << "the chunks had them";
  EXPECT_FALSE(answer.next());
}

TEST(VllmEngineAnswer, AWholeAnswerIsTheLastMessagesAlone) {
  EngineAnswer answer(/*streams=*/false);
  answer.begin(requests_of(2, 2));
  GenerateEvent first = event_of({4}, "a", {kLikely});
  first.prompt_logprobs = {kOther, kLikely};
  answer.add(1, first);
  answer.add(0, event_of({5}, "b", {kOther}));
  EXPECT_FALSE(answer.next());
  GenerateEvent last = end_of(FinishReason::kStop, 1);
  last.stop_id = 0;
  answer.add(1, last);
  wire::GenerateComplete complete = answer.next()->complete();
  EXPECT_EQ(complete.index(), 1U);
  EXPECT_EQ(complete.matched_stop_case(), wire::GenerateComplete::kMatchedTokenId);
  EXPECT_EQ(complete.output_logprobs().token_ids(0), 4U);
  const wire::InputLogProbs& input = complete.input_logprobs();
  EXPECT_EQ(ids_of(input.token_ids()), (std::vector<TokenId>{7, 5, 4}));
  ASSERT_EQ(input.token_logprobs_size(), 3);
  EXPECT_FALSE(input.token_logprobs(0).has_value());
  EXPECT_EQ(input.token_logprobs(1).value(), -2.0F);
  ASSERT_EQ(input.top_logprobs_size(), 3);
  EXPECT_EQ(input.top_logprobs(0).values_size(), 0);
  EXPECT_EQ(input.top_logprobs(1).values(1), -1.5F);
  EXPECT_FALSE(answer.next());
  answer.add(0, end_of(FinishReason::kLength, 1));
  complete = answer.next()->complete();
  EXPECT_EQ(complete.index(), 0U);
  EXPECT_EQ(complete.finish_reason(), "length");
  EXPECT_EQ(complete.input_logprobs().token_ids_size(), 1) << "nothing was told of the others";
}

TEST(VllmEngineAnswer, APromptOfOneTokenHasNoLogprobToTell) {
  std::vector<Request> requests = requests_of(1, 0);
  requests.front().prompt = {7};
  EngineAnswer answer(/*streams=*/true);
  answer.begin(requests);
  answer.add(0, end_of(FinishReason::kLength, 0));
  const wire::InputLogProbs input = answer.next()->chunk().input_logprobs();
  EXPECT_EQ(ids_of(input.token_ids()), (std::vector<TokenId>{7}));
  EXPECT_FALSE(input.token_logprobs(0).has_value());
  EXPECT_EQ(input.top_logprobs_size(), 0);
  EXPECT_TRUE(answer.next()->has_complete());
}

TEST(VllmEngineAnswer, ACallThatEndsBeforeItsPromptIsMadeIsAborted) {
  EngineAnswer answer(/*streams=*/true);
  answer.add(0, end_of(FinishReason::kAborted, 0));
  EXPECT_EQ(answer.next()->complete().finish_reason(), "abort");
}

::vllm::ResponseOptions all_options() {
  ::vllm::ResponseOptions options;
  options.set_prompt_token_ids(true);
  options.set_output_token_ids(true);
  return options;
}

TEST(VllmInferenceAnswer, AStreamBeginsWithThePrompt) {
  InferenceAnswer answer(InferenceForm(all_options()), /*streams=*/true);
  answer.begin(requests_of(2, 2));
  EXPECT_FALSE(answer.next());
  GenerateEvent first = event_of({4}, "a", {kLikely});
  first.prompt_logprobs = {kOther, kLikely};
  answer.add(1, first);
  ::vllm::GenerateResponse response = *answer.next();
  EXPECT_FALSE(response.has_outputs());
  const ::vllm::PromptInfo& prompt = response.prompt_info();
  EXPECT_EQ(prompt.num_prompt_tokens(), 3U);
  EXPECT_EQ(ids_of(prompt.token_ids()), (std::vector<TokenId>{7, 8, 9}));
  EXPECT_EQ(ids_of(prompt.ranks()), (std::vector<TokenId>{0, 3, 1}));
  EXPECT_EQ(prompt.logprobs(1), -2.0F);
  EXPECT_EQ(prompt.candidate_tokens(1).tokens_size(), 2);
  response = *answer.next();
  EXPECT_FALSE(response.has_prompt_info());
  EXPECT_EQ(response.outputs().index(), 1U);
  EXPECT_EQ(response.outputs().text(), "a");
  EXPECT_EQ(response.outputs().num_tokens(), 1U);
  ASSERT_EQ(response.outputs().candidate_tokens(0).tokens_size(), 1) << "but for the one that is there";
  EXPECT_EQ(response.outputs().candidate_tokens(0).tokens(0).id(), 6U);
  EXPECT_FALSE(response.outputs().has_finish_info());
  answer.add(1, event_of({5}, "b"));
  answer.add(1, end_of(FinishReason::kStop, 2));
  response = *answer.next();
  EXPECT_EQ(ids_of(response.outputs().token_ids()), (std::vector<TokenId>{5}));
  EXPECT_EQ(response.outputs().finish_info().finish_reason(), ::vllm::FinishInfo::STOP);
  EXPECT_EQ(response.outputs().finish_info().eos_token_id(), 5U);
  EXPECT_EQ(response.outputs().finish_info().num_output_tokens(), 2U);
  EXPECT_FALSE(answer.next());
}

TEST(VllmInferenceAnswer, AWholeAnswerIsOneMessage) {
  ::vllm::ResponseOptions options;
  options.set_output_text(false);
  InferenceAnswer answer{InferenceForm(options), /*streams=*/false};
  answer.begin(requests_of(1));
  answer.add(0, event_of({4}, "a"));
  answer.add(0, event_of({5}, "b"));
  GenerateEvent last = end_of(FinishReason::kStop, 2);
  last.stop_id = 5;
  answer.add(0, last);
  const ::vllm::GenerateResponse response = *answer.next();
  EXPECT_EQ(response.prompt_info().num_prompt_tokens(), 3U);
  EXPECT_EQ(response.prompt_info().token_ids_size(), 0);
  EXPECT_EQ(response.outputs().text(), "");
  EXPECT_EQ(response.outputs().token_ids_size(), 0);
  EXPECT_EQ(response.outputs().num_tokens(), 2U);
  EXPECT_EQ(response.outputs().finish_info().stop_token_id(), 5U);
  EXPECT_FALSE(answer.next());
}

TEST(VllmInferenceAnswer, TellsHowACompletionEnded) {
  const auto finish = [](const GenerateEvent& last) {
    InferenceAnswer answer(InferenceForm(::vllm::ResponseOptions()), /*streams=*/false);
    answer.begin(requests_of(1));
    answer.add(0, last);
    return answer.next()->outputs().finish_info();
  };
  EXPECT_EQ(finish(end_of(FinishReason::kLength, 1)).finish_reason(), ::vllm::FinishInfo::LENGTH);
  EXPECT_EQ(finish(end_of(FinishReason::kAborted, 1)).finish_reason(), ::vllm::FinishInfo::ABORTED);
  GenerateEvent stopped = end_of(FinishReason::kStop, 1);
  EXPECT_EQ(finish(stopped).stop_reason_case(), ::vllm::FinishInfo::STOP_REASON_NOT_SET);
  stopped.stop = "x";
  EXPECT_EQ(finish(stopped).stop_string(), "x");
}

}  // namespace
}  // namespace ferry::vllm
