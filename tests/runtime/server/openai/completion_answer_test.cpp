#include "runtime/server/openai/completion_answer.h"

#include <gtest/gtest.h>

#include "tests/runtime/server/openai/demo_tokens.h"

namespace ferry::api::openai {
namespace {

using test::demo_tokenizer;
using test::end;
using test::kIs;
using test::kKernel;
using test::kSnow0;
using test::kThe;
using test::tokens;
using test::told;

CompletionForm completion_form(bool echo = false, bool has_logprobs = false) {
  return {.head = {.id = "cmpl-7", .model = "demo", .fingerprint = "ferry-0", .created = 5},
          .choices_per_prompt = 1,
          .echo = echo,
          .has_logprobs = has_logprobs};
}

CompletionAnswer answer_of(CompletionForm form, std::vector<ToldPrompt> prompts = {{.text = "The", .ids = {kThe}}},
                           bool as_ids = false) {
  return CompletionAnswer(std::move(form), std::move(prompts), TokenNames(demo_tokenizer(), as_ids));
}

TEST(CompletionAnswer, WholeSaysEveryField) {
  CompletionAnswer answer = answer_of(completion_form());
  answer.keep(0, tokens({kKernel}, " ker"));
  answer.keep(0, tokens({kIs}, "nel is"));
  answer.keep(0, end(FinishReason::kStop, "!", "."));
  EXPECT_EQ(
      answer.whole(),
      R"({"id":"cmpl-7","object":"text_completion","created":5,"model":"demo","choices":[{"index":0,"text":" kernel is!",)"
      R"("logprobs":null,"finish_reason":"stop","stop_reason":".","token_ids":null,"prompt_logprobs":null,)"
      R"("prompt_token_ids":null}],"service_tier":null,"system_fingerprint":"ferry-0","usage":{"prompt_tokens":1,)"
      R"("total_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0},)"
      R"("completion_tokens_details":{"reasoning_tokens":0}},"kv_transfer_params":null,"metrics":null})");
}

TEST(CompletionAnswer, StreamTellsTextAsItComesAndEnds) {
  CompletionForm form = completion_form();
  form.head.includes_usage = true;
  CompletionAnswer answer = answer_of(form);
  EXPECT_EQ(answer.chunk(0, tokens({kKernel}, " kernel")),
            "data: "
            R"({"id":"cmpl-7","object":"text_completion","created":5,"model":"demo","choices":[{"index":0,"text":" kernel",)"
            R"("logprobs":null,"finish_reason":null,"stop_reason":null}]})"
            "\n\n");
  EXPECT_EQ(answer.chunk(0, tokens({kSnow0}, "")), "") << "text that is held back is no event";
  GenerateEvent last = end(FinishReason::kStop);
  last.stop_id = kIs;
  EXPECT_EQ(answer.chunk(0, last),
            "data: "
            R"({"id":"cmpl-7","object":"text_completion","created":5,"model":"demo","choices":[{"index":0,"text":"",)"
            R"("logprobs":null,"finish_reason":"stop","stop_reason":296}]})"
            "\n\n");
  EXPECT_EQ(answer.last_chunks(),
            "data: "
            R"({"id":"cmpl-7","object":"text_completion","created":5,"model":"demo","choices":[],"usage":{"prompt_tokens":1,)"
            R"("total_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0},)"
            R"("completion_tokens_details":{"reasoning_tokens":0}},"system_fingerprint":"ferry-0"})"
            "\n\ndata: [DONE]\n\n");
}

TEST(CompletionAnswer, StreamWithoutUsageJustEnds) {
  EXPECT_EQ(answer_of(completion_form()).last_chunks(), "data: [DONE]\n\n");
}

TEST(CompletionAnswer, TokensOfHeldBackTextAreToldWithLogprobs) {
  CompletionAnswer answer = answer_of(completion_form(false, true));
  const std::string chunk = answer.chunk(0, tokens({kSnow0}, "", {told({kSnow0, -0.5F, 1}, {{kSnow0, -0.5F, 1}})}));
  EXPECT_NE(chunk.find(R"("text":"","logprobs":{"text_offset":[0],"token_logprobs":[-0.5],"tokens":["�"],)"
                       R"("top_logprobs":[{"�":-0.5}]})"),
            std::string::npos)
      << chunk;
  const std::string next = answer.chunk(0, tokens({kIs}, "? is", {told({kIs, -0.25F, 1}, {{kIs, -0.25F, 1}})}));
  EXPECT_NE(next.find(R"("text_offset":[1])"), std::string::npos) << "offsets are of characters: " << next;
}

TEST(CompletionAnswer, EchoPutsThePromptBeforeTextAndLogprobs) {
  const std::vector<ToldPrompt> prompts = {{.text = "The kernel", .ids = {kThe, kKernel}}};
  const TokenLogprobs of_kernel = told({kKernel, -2.0F, 3}, {{kIs, -0.25F, 1}});
  const TokenLogprobs of_is = told({kIs, -0.5F, 1}, {{kIs, -0.5F, 1}});
  const std::string expected =
      R"("text":"The kernel is","logprobs":{"text_offset":[0,3,10],"token_logprobs":[null,-2.0,-0.5],)"
      R"("tokens":["The"," kernel"," is"],"top_logprobs":[null,{" is":-0.25," kernel":-2.0},{" is":-0.5}]})";
  GenerateEvent first = tokens({kIs}, " is", {of_is});
  first.prompt_logprobs = {of_kernel};

  CompletionAnswer whole = answer_of(completion_form(true, true), prompts);
  whole.keep(0, first);
  whole.keep(0, end(FinishReason::kLength));
  EXPECT_NE(whole.whole().find(expected), std::string::npos) << whole.whole();

  CompletionAnswer stream = answer_of(completion_form(true, true), prompts);
  const std::string chunk = stream.chunk(0, first);
  EXPECT_NE(chunk.find(expected), std::string::npos) << chunk;
}

TEST(CompletionAnswer, APromptIsScoredWithoutATokenMore) {
  CompletionAnswer answer = answer_of(completion_form(true, true), {{.text = "The kernel", .ids = {kThe, kKernel}}});
  GenerateEvent last = end(FinishReason::kLength);
  last.prompt_logprobs = {told({kKernel, -2.0F, 3}, {})};
  answer.keep(0, last);
  const std::string whole = answer.whole();
  EXPECT_NE(whole.find(R"("text":"The kernel","logprobs":{"text_offset":[0,3],"token_logprobs":[null,-2.0],)"
                       R"("tokens":["The"," kernel"],"top_logprobs":[null,{" kernel":-2.0}]})"),
            std::string::npos)
      << whole;
}

TEST(CompletionAnswer, ChoicesOfEveryPromptAreCountedOnce) {
  CompletionForm form = completion_form();
  form.choices_per_prompt = 2;
  CompletionAnswer answer = answer_of(form, {{.text = "", .ids = {kThe}}, {.text = "", .ids = {kThe, kIs}}});
  for (std::size_t i = 0; i < 4; ++i) {
    GenerateEvent event = tokens({kIs}, std::to_string(i));
    event.cached_tokens = 1;
    answer.keep(i, event);
    answer.keep(i, end(FinishReason::kLength));
  }
  const std::string whole = answer.whole();
  EXPECT_NE(whole.find(R"("index":3,"text":"3")"), std::string::npos) << whole;
  EXPECT_NE(
      whole.find(R"("prompt_tokens":3,"total_tokens":7,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2})"),
      std::string::npos)
      << whole;
}

TEST(CompletionAnswer, TokensCanBeTold) {
  CompletionForm form = completion_form(false, true);
  form.returns_token_ids = true;
  form.has_prompt_logprobs = true;
  CompletionAnswer answer = answer_of(form, {{.text = "", .ids = {kThe, kKernel}}}, true);
  GenerateEvent event = tokens({kIs}, " is", {told({kIs, -0.5F, 1}, {})});
  event.prompt_logprobs = {told({kKernel, -1.5F, 2}, {{kIs, -0.5F, 1}, {kKernel, -1.5F, 2}})};
  answer.keep(0, event);
  answer.keep(0, end(FinishReason::kLength));
  const std::string whole = answer.whole();
  EXPECT_NE(whole.find(R"("tokens":["token_id:296"])"), std::string::npos) << whole;
  EXPECT_NE(
      whole.find(R"("token_ids":[296],"prompt_logprobs":[null,{"1023":{"logprob":-1.5,"rank":2,"decoded_token":" kernel"},)"
                 R"("296":{"logprob":-0.5,"rank":1,"decoded_token":" is"}}],"prompt_token_ids":[443,1023])"),
      std::string::npos)
      << whole;
}

TEST(CompletionAnswer, UsageCanBeInEveryChunk) {
  CompletionForm form = completion_form();
  form.head.includes_usage = form.head.has_usage_in_chunks = true;
  CompletionAnswer answer = answer_of(form);
  EXPECT_NE(answer.chunk(0, tokens({kIs}, " is")).find(R"("usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1)"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::api::openai
