#include "runtime/server/openai/chat_answer.h"

#include <gtest/gtest.h>

#include <regex>

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

constexpr const char* kHead = R"({"id":"chatcmpl-7","object":"chat.completion.chunk","created":5,"model":"demo","choices":[)";

ChatForm form_of() { return {.head = {.id = "chatcmpl-7", .model = "demo", .fingerprint = "ferry-0", .created = 5}}; }

ChatAnswer answer_of(ChatForm form, const char* tools = "null") {
  return ChatAnswer(std::move(form), ToolSet::parse(ordered_json::parse(tools)), {kThe}, TokenNames(demo_tokenizer(), false));
}

/// A text as events bring it, a token each.
std::vector<GenerateEvent> spelled(const std::string& text) {
  std::vector<GenerateEvent> events;
  for (const TokenId id : demo_tokenizer().encode(text))
    events.push_back(tokens({id}, std::string(demo_tokenizer().token_bytes(id))));
  return events;
}

std::string streamed(ChatAnswer& answer, const std::string& text, FinishReason reason) {
  std::string chunks;
  for (const GenerateEvent& event : spelled(text)) chunks += answer.chunk(0, event);
  return chunks + answer.chunk(0, end(reason));
}

std::string whole_of(ChatAnswer& answer, const std::string& text, FinishReason reason) {
  for (const GenerateEvent& event : spelled(text)) answer.keep(0, event);
  answer.keep(0, end(reason));
  return answer.whole();
}

constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"days":{"type":"integer"}}}}}])";
constexpr const char* kCall = "<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";

TEST(ChatAnswer, WholeSaysEveryField) {
  ChatAnswer answer = answer_of(form_of());
  answer.keep(0, tokens({kKernel}, " kernel"));
  answer.keep(0, end(FinishReason::kLength));
  EXPECT_EQ(answer.whole(),
            R"({"id":"chatcmpl-7","object":"chat.completion","created":5,"model":"demo","choices":[{"index":0,"message":)"
            R"({"role":"assistant","content":" kernel","refusal":null,"annotations":null,"audio":null,"function_call":null,)"
            R"("reasoning":null,"reasoning_content":null},"logprobs":null,"finish_reason":"length","stop_reason":null,)"
            R"("token_ids":null}],"service_tier":null,"system_fingerprint":"ferry-0","usage":{"prompt_tokens":1,)"
            R"("total_tokens":2,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0},)"
            R"("completion_tokens_details":{"reasoning_tokens":0}},"prompt_logprobs":null,"prompt_token_ids":null,)"
            R"("kv_transfer_params":null,"metrics":null})");
}

TEST(ChatAnswer, StreamBeginsWithTheRoleAndEndsWithTheReason) {
  ChatAnswer answer = answer_of(form_of());
  const std::string head = std::string("data: ") + kHead;
  EXPECT_EQ(answer.chunk(0, tokens({kKernel}, " kernel")),
            head + R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})" + "\n\n" +
                head + R"({"index":0,"delta":{"content":" kernel"},"logprobs":null,"finish_reason":null}]})" + "\n\n");
  EXPECT_EQ(answer.chunk(0, tokens({kSnow0}, "")), "") << "text that is held back is no event";
  EXPECT_EQ(answer.chunk(0, end(FinishReason::kStop, "", "is")),
            head + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":"is"}]})" + "\n\n");
  EXPECT_EQ(answer.last_chunks(), "data: [DONE]\n\n");
}

TEST(ChatAnswer, StreamEndsWithUsageWhereItIsAskedFor) {
  ChatForm form = form_of();
  form.head.includes_usage = true;
  ChatAnswer answer = answer_of(form);
  answer.chunk(0, tokens({kKernel}, " kernel"));
  EXPECT_EQ(answer.last_chunks(),
            std::string("data: ") + kHead +
                R"(],"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1,"prompt_tokens_details":)"
                R"({"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"system_fingerprint":"ferry-0"})"
                "\n\ndata: [DONE]\n\n");
}

TEST(ChatAnswer, LogprobsHaveTrueBytesAlsoOfHalfACharacter) {
  ChatForm form = form_of();
  form.has_logprobs = true;
  ChatAnswer answer = answer_of(form);
  const std::string chunks = answer.chunk(0, tokens({kSnow0}, "", {told({kSnow0, -0.5F, 2}, {{kIs, -0.25F, 1}})}));
  EXPECT_NE(
      chunks.find(R"("delta":{},"logprobs":{"content":[{"token":"�","logprob":-0.5,"bytes":[226],"top_logprobs":[)"
                  R"({"token":" is","logprob":-0.25,"bytes":[32,105,115]},{"token":"�","logprob":-0.5,"bytes":[226]}]}]},)"
                  R"("finish_reason":null)"),
      std::string::npos)
      << chunks;
}

TEST(ChatAnswer, LogprobsWithoutLikeliestHaveAnEmptyList) {
  ChatForm form = form_of();
  form.has_logprobs = true;
  ChatAnswer answer = answer_of(form);
  answer.keep(0, tokens({kIs}, " is", {told({kIs, -1e30F, 9}, {})}));
  answer.keep(0, end(FinishReason::kLength));
  const std::string whole = answer.whole();
  EXPECT_NE(whole.find(R"({"token":" is","logprob":-9999.0,"bytes":[32,105,115],"top_logprobs":[]})"), std::string::npos)
      << whole;
}

TEST(ChatAnswer, CallsOfToolsAreNoContent) {
  ChatAnswer answer = answer_of(form_of(), kTools);
  const std::string whole = whole_of(answer, kCall, FinishReason::kStop);
  const std::regex expected(R"re("content":null,.*"tool_calls":\[\{"id":"chatcmpl-tool-[0-9a-f]{32}","type":"function",)re"
                            R"re("function":\{"name":"weather","arguments":"\{\\"days\\": 2\}"\}\}\],"reasoning":null)re");
  EXPECT_TRUE(std::regex_search(whole, expected)) << whole;
  EXPECT_NE(whole.find(R"("finish_reason":"tool_calls")"), std::string::npos) << whole;
}

TEST(ChatAnswer, CallsOfToolsAreStreamed) {
  ChatAnswer answer = answer_of(form_of(), kTools);
  const std::string chunks = streamed(answer, kCall, FinishReason::kStop);
  const std::regex begin(R"re("delta":\{"tool_calls":\[\{"index":0,"id":"chatcmpl-tool-[0-9a-f]{32}","type":"function",)re"
                         R"re("function":\{"name":"weather","arguments":")re");
  EXPECT_TRUE(std::regex_search(chunks, begin)) << chunks;
  EXPECT_NE(chunks.find(R"("finish_reason":"tool_calls")"), std::string::npos) << chunks;
  EXPECT_EQ(chunks.find("tool_call>"), std::string::npos) << chunks;
}

TEST(ChatAnswer, ForcedCallsStandBesideEmptyContent) {
  ChatForm form = form_of();
  form.requires_call = true;
  ChatAnswer required = answer_of(form, kTools);
  const std::string of_required = whole_of(required, kCall, FinishReason::kStop);
  EXPECT_NE(of_required.find(R"("content":"")"), std::string::npos) << of_required;
  EXPECT_NE(of_required.find(R"("finish_reason":"tool_calls")"), std::string::npos) << of_required;

  form = form_of();
  form.names_function = true;
  ChatAnswer named = answer_of(form, kTools);
  const std::string of_named = whole_of(named, kCall, FinishReason::kStop);
  EXPECT_NE(of_named.find(R"("content":"")"), std::string::npos) << of_named;
  EXPECT_NE(of_named.find(R"("finish_reason":"stop")"), std::string::npos) << of_named;
}

TEST(ChatAnswer, ACallThatIsCutEndsAsLength) {
  ChatAnswer answer = answer_of(form_of(), kTools);
  EXPECT_NE(whole_of(answer, kCall, FinishReason::kLength).find(R"("finish_reason":"length")"), std::string::npos);
}

TEST(ChatAnswer, WithoutToolsACallIsText) {
  ChatAnswer answer = answer_of(form_of());
  const std::string whole = whole_of(answer, kCall, FinishReason::kStop);
  EXPECT_NE(whole.find("<function=weather>"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("finish_reason":"stop")"), std::string::npos) << whole;
}

TEST(ChatAnswer, ThoughtsHaveTwoNames) {
  ChatForm form = form_of();
  form.starts_in_reasoning = true;
  ChatAnswer answer = answer_of(form);
  const std::string whole = whole_of(answer, "The kernel</think>\n\nis", FinishReason::kStop);
  EXPECT_NE(whole.find(R"("content":"is")"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("reasoning":"The kernel","reasoning_content":"The kernel")"), std::string::npos) << whole;
  EXPECT_EQ(whole.find(R"("reasoning_tokens":0)"), std::string::npos) << whole;

  ChatAnswer stream = answer_of(form);
  const std::string chunks = streamed(stream, "The kernel</think>\n\nis", FinishReason::kStop);
  EXPECT_NE(chunks.find(R"("delta":{"reasoning":"The","reasoning_content":"The"})"), std::string::npos) << chunks;
  EXPECT_NE(chunks.find(R"("delta":{"content":"is"})"), std::string::npos) << chunks;
}

TEST(ChatAnswer, AHiddenThoughtTakesItsTokensWithIt) {
  ChatForm form = form_of();
  form.starts_in_reasoning = true;
  form.includes_reasoning = false;
  form.has_logprobs = form.returns_token_ids = true;
  ChatAnswer answer = answer_of(form);
  const std::string whole = whole_of(answer, "The kernel</think>\n\nis", FinishReason::kStop);
  EXPECT_NE(whole.find(R"("reasoning":null,"reasoning_content":null},"logprobs":null)"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("token_ids":null)"), std::string::npos) << whole;
  EXPECT_EQ(whole.find("kernel"), std::string::npos) << whole;
}

TEST(ChatAnswer, AnEchoComesFirst) {
  ChatForm form = form_of();
  form.echoed = "So: ";
  ChatAnswer whole = answer_of(form);
  EXPECT_NE(whole_of(whole, "The", FinishReason::kStop).find(R"("content":"So: The")"), std::string::npos);
  ChatAnswer stream = answer_of(form);
  const std::string chunks = streamed(stream, "The", FinishReason::kStop);
  EXPECT_LT(chunks.find(R"("delta":{"content":"So: "})"), chunks.find(R"("delta":{"content":"The"})")) << chunks;
}

TEST(ChatAnswer, PromptTokensAreToldWithTheFirstChunk) {
  ChatForm form = form_of();
  form.returns_token_ids = true;
  ChatAnswer answer = answer_of(form);
  const std::string chunks = answer.chunk(0, tokens({kIs}, " is"));
  EXPECT_NE(chunks.find(R"("finish_reason":null}],"prompt_token_ids":[443]})"), std::string::npos) << chunks;
  EXPECT_NE(chunks.find(R"("finish_reason":null,"token_ids":[296]}]})"), std::string::npos) << chunks;
}

}  // namespace
}  // namespace ferry::api::openai
