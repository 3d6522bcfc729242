#include <gtest/gtest.h>

#include <string>

#include "runtime/server/anthropic/message_answer.h"
#include "runtime/server/anthropic/message_error.h"
#include "runtime/server/anthropic/message_request.h"
#include "runtime/server/api/api_error.h"
#include "tests/runtime/server/openai/demo_tokens.h"

// POST /v1/messages: what its bodies mean, and how its answers are told.

namespace ferry::api::anthropic {
namespace {

ApiSettings message_settings() {
  ApiSettings settings;
  settings.model_names = {"demo"};
  settings.context_length = 100;
  settings.vocab_size = 6144;
  return settings;
}

MessageRequest parsed(const std::string& body, const ApiSettings& settings = message_settings()) {
  static const HttpRequest request;
  return parse_message(ordered_json::parse(body), request, settings);
}
/// With a message, max_tokens and `fields`.
std::string body_with(const std::string& fields) {
  return R"({"max_tokens":2000,"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
}
MessageRequest with(const std::string& fields) { return parsed(body_with(fields)); }
std::string refusal_of(const std::string& body) {
  try {
    parsed(body);
  } catch (const std::exception&) {
    const ApiError error = current_error();
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "";
}
ChatPrompt prompt_of(const std::string& messages, const std::string& fields = "") {
  return parsed(R"({"max_tokens":5,"messages":)" + messages + (fields.empty() ? "" : "," + fields) + "}").conversation.prompt;
}
std::string messages_of(const std::string& messages, const std::string& fields = "") {
  return dump(prompt_of(messages, fields).input.messages);
}

TEST(MessageRequest, SystemIsATextOrBlocks) {
  const std::string user = R"([{"role":"user","content":"hi"}])";
  EXPECT_EQ(messages_of(user), user);
  EXPECT_EQ(messages_of(user, R"("system":"a")"), R"([{"role":"system","content":"a"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(
      messages_of(user, R"("system":[{"type":"text","text":"x-anthropic-billing-header: cc=1"},{"type":"text","text":"a",)"
                        R"("cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}])"),
      R"([{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"user","content":"hi"}])");
}

TEST(MessageRequest, WhoAsksHasTheShare) {
  const auto account_of = [](const std::string& fields, std::optional<int> key) {
    const HttpRequest request{.caller = key};
    return parse_message(ordered_json::parse(body_with(fields)), request, message_settings()).conversation.generation.account;
  };
  EXPECT_EQ(account_of("", {}), "");
  EXPECT_EQ(account_of(R"("metadata":{"user_id":"u"})", {}), "user u");
  EXPECT_EQ(account_of(R"("metadata":{"user_id":null})", {}), "");
  EXPECT_EQ(account_of(R"("metadata":"none")", {}), "");
  EXPECT_EQ(account_of(R"("metadata":{"user_id":"u"})", 3), account_of("", 3)) << "a key cannot have more by naming users";
}

TEST(MessageRequest, BlocksOfBothSides) {
  EXPECT_EQ(messages_of(
                R"([{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"thinking",)"
                R"("thinking":"hm","signature":"s"},{"type":"text","text":"b"},{"type":"tool_use","id":"t1","name":"f",)"
                R"("input":{"x":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"c"},)"
                R"({"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"d"}]},)"
                R"({"type":"tool_result","tool_use_id":"t3"},{"type":"text","text":"e"}]}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning":"hm","reasoning_content":"hm",)"
            R"("tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
            R"({"role":"tool","tool_call_id":"t1","content":"c"},)"
            R"({"role":"tool","tool_call_id":"t2","content":[{"type":"text","text":"Error: "},{"type":"text","text":"d"}]},)"
            R"({"role":"tool","tool_call_id":"t3","content":""},{"role":"user","content":"e"}])");
}

TEST(MessageRequest, TextKeepsItsPlaceAmongResults) {
  EXPECT_EQ(
      messages_of(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"t1",)"
                  R"("content":"b"},{"type":"text","text":"c"},{"type":"tool_result","tool_use_id":"t2","content":"d"}]}])"),
      R"([{"role":"user","content":"a"},{"role":"tool","tool_call_id":"t1","content":"b"},)"
      R"({"role":"user","content":"c"},{"role":"tool","tool_call_id":"t2","content":"d"}])");
}

TEST(MessageRequest, PicturesAreUrls) {
  const ChatPrompt prompt = prompt_of(
      R"([{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},)"
      R"({"type":"image","source":{"type":"url","url":"https://a/b"}}]}])");
  EXPECT_EQ(prompt.picture_urls, (std::vector<std::string>{"data:image/png;base64,AAAA", "https://a/b"}));
  EXPECT_EQ(dump(prompt.input.messages), R"([{"role":"user","content":[{"type":"image"},{"type":"image"}]}])");
}

TEST(MessageRequest, ATurnThatIsBegunGoesOn) {
  EXPECT_TRUE(with("").conversation.prompt.input.add_generation_prompt);
  const ChatPrompt prompt = prompt_of(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  EXPECT_TRUE(prompt.input.continue_final_message);
  EXPECT_FALSE(prompt.input.add_generation_prompt);
}

TEST(MessageRequest, ThoughtsAreAskedFor) {
  const auto thinking = [](const std::string& fields) { return with(fields).conversation.prompt.input.thinking; };
  EXPECT_EQ(with("").conversation.prompt.input.kwargs.at("enable_thinking"), false) << "nobody asked";
  EXPECT_EQ(thinking(R"("thinking":{"type":"enabled","budget_tokens":1024})"), true);
  EXPECT_EQ(with(R"("thinking":{"type":"enabled","budget_tokens":1024})").conversation.generation.thinking_budget, 1024);
  EXPECT_EQ(thinking(R"("thinking":{"type":"adaptive"})"), true);
  EXPECT_EQ(with(R"("thinking":{"type":"adaptive"})").conversation.generation.thinking_budget, std::nullopt);
  EXPECT_EQ(thinking(R"("thinking":{"type":"disabled"})"), false);
  EXPECT_FALSE(with(R"("thinking":{"type":"adaptive","display":"omitted"})").shows_thought);
  ApiSettings settings = message_settings();
  settings.template_kwargs["enable_thinking"] = true;
  EXPECT_EQ(parsed(body_with(""), settings).conversation.prompt.input.kwargs.at("enable_thinking"), true);
}

TEST(MessageRequest, ToolsAndTheirChoice) {
  const std::string tools = R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"cache_control":null}])";
  const auto choice = [&](const std::string& asked) { return with(tools + R"(,"tool_choice":)" + asked).conversation; };
  EXPECT_EQ(dump(with(tools).conversation.prompt.input.tools),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}])");
  EXPECT_EQ(with(tools).conversation.tool_choice.kind, ToolChoice::Kind::kAuto);
  EXPECT_EQ(choice(R"({"type":"any"})").tool_choice.kind, ToolChoice::Kind::kRequired);
  EXPECT_EQ(choice(R"({"type":"none"})").tool_choice.kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(choice(R"({"type":"tool","name":"f"})").tool_choice.name, "f");
  EXPECT_TRUE(choice(R"({"type":"auto"})").parallel_tool_calls);
  EXPECT_FALSE(choice(R"({"type":"auto","disable_parallel_tool_use":true})").parallel_tool_calls);
}

TEST(MessageRequest, SamplingStopsAndFormat) {
  const GenerationFields read =
      with(
          R"("temperature":0,"top_k":7,"top_p":0.5,"stop_sequences":["\n","x"],"stream":true,)"
          R"("output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"null"}}},"metadata":{"user_id":"u"})")
          .conversation.generation;
  EXPECT_EQ(read.sampling.temperature, 0.0F);
  EXPECT_EQ(read.sampling.top_k, 7);
  EXPECT_EQ(read.sampling.top_p, 0.5F);
  EXPECT_EQ(read.sampling.stop, (std::vector<std::string>{"\n", "x"}));
  EXPECT_EQ(read.max_tokens, 2000);
  EXPECT_TRUE(read.streams);
  EXPECT_EQ(read.constraint.value().param, "output_config.format.schema");
}

TEST(MessageRequest, WhatIsNotServedIsRefusedByName) {
  for (const auto& [fields, name] :
       {std::pair(R"("container":"c")", "container"),
        {R"("mcp_servers":[{"type":"url"}])", "mcp_servers"},
        {R"("n":2,"temperature":1)", "n is 2"},
        {R"("logprobs":true)", "logprobs"},
        {R"("stop_sequences":[""])", "stop_sequences"},
        {R"("tools":[{"type":"bash_20250124","name":"bash"}])", "tools[0]"},
        {R"("tool_choice":{"type":"any"})", "tool_choice"},
        {R"("tools":[{"name":"f"}],"tool_choice":{"type":"maybe"})", "tool_choice.type"},
        {R"("tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"g"})", "g"},
        {R"("thinking":{"type":"enabled"})", "budget_tokens"},
        {R"("thinking":{"type":"enabled","budget_tokens":1000})", "1024"},
        {R"("thinking":{"type":"enabled","budget_tokens":2000})", "less than max_tokens"},
        {R"("thinking":{"type":"enabled","budget_tokens":1024,"display":"x"})", "thinking.display"},
        {R"("thinking":{"type":"perhaps"})", "thinking.type"},
        {R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]})", "context_management.edits[0]"},
        {R"("output_config":{"effort":"huge"})", "output_config.effort"},
        {R"("output_format":{"type":"json"})", "output_format.type"},
        {R"("system":[{"type":"image"}])", "system[0]"}}) {
    EXPECT_NE(refusal_of(body_with(fields)).find(name), std::string::npos) << fields << ": " << refusal_of(body_with(fields));
  }
  EXPECT_EQ(refusal_of(body_with(R"("context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})")), "");
  EXPECT_EQ(refusal_of(R"({"messages":[{"role":"user","content":"a"}]})"), "missing field `max_tokens`");
  for (const char* messages :
       {"[]", "{}", "[1]", R"([{"content":"a"}])", R"([{"role":"user"}])", R"([{"role":"tool","content":"a"}])",
        R"([{"role":"user","content":[]}])", R"([{"role":"user","content":[{"type":"document","source":{}}]}])",
        R"([{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}])",
        R"([{"role":"user","content":[{"type":"tool_result"}]}])", R"([{"role":"user","content":[{"text":"a"}]}])",
        R"([{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}])",
        R"([{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":"x"}]}])",
        R"([{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}])"}) {
    EXPECT_THROW(messages_of(messages), ApiError) << messages;
  }
}

TEST(MessageErrors, HaveAnthropicsEnvelope) {
  const auto body = [](int status) { return message_errors().response(ApiError(status, "T", "m")).body; };
  EXPECT_EQ(body(400), R"({"type":"error","error":{"type":"invalid_request_error","message":"m"}})");
  EXPECT_EQ(body(404), R"({"type":"error","error":{"type":"not_found_error","message":"m"}})");
  EXPECT_EQ(body(503), R"({"type":"error","error":{"type":"overloaded_error","message":"m"}})");
  EXPECT_EQ(body(500), R"({"type":"error","error":{"type":"api_error","message":"m"}})");
  EXPECT_EQ(message_errors().stream_end(ApiError(503, "T", "m")),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n");
  HttpResponse refusal = http_error(401, "a key is missing");
  message_errors().reword(refusal);
  EXPECT_EQ(refusal.body, R"({"type":"error","error":{"type":"authentication_error","message":"a key is missing"}})");
}

constexpr const char* kMessageTools =
    R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"days":{"type":"integer"}}}}}])";
constexpr const char* kMessageCall =
    "<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";

MessageAnswer message_answer(bool in_reasoning = false, bool shows_thought = true) {
  ReplyReading reading{.tools = ToolSet::parse(ordered_json::parse(kMessageTools)),
                       .prompt_ids = {test::kThe, test::kKernel, test::kIs},
                       .starts_in_reasoning = in_reasoning};
  return MessageAnswer({.id = "msg_7", .model = "demo", .shows_thought = shows_thought}, std::move(reading),
                       test::demo_tokenizer());
}

std::vector<GenerateEvent> message_events(const std::string& text, FinishReason reason, const std::string& stop = "") {
  std::vector<GenerateEvent> events;
  for (const TokenId id : test::demo_tokenizer().encode(text))
    events.push_back(test::tokens({id}, std::string(test::demo_tokenizer().token_bytes(id))));
  events.push_back(test::end(reason, "", stop));
  return events;
}

ordered_json whole_of(MessageAnswer answer, const std::string& text, FinishReason reason, const std::string& stop = "") {
  for (const GenerateEvent& event : message_events(text, reason, stop)) answer.keep(0, event);
  return ordered_json::parse(answer.whole());
}

TEST(MessageAnswer, AStreamByteForByte) {
  MessageAnswer answer = message_answer();
  GenerateEvent first = test::tokens({test::kKernel}, " kernel");
  first.cached_tokens = 2;
  EXPECT_EQ(answer.chunk(0, first),
            "event: message_start\n"
            R"(data: {"type":"message_start","message":{"id":"msg_7","type":"message","role":"assistant","model":"demo",)"
            R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":2,"output_tokens":1}}})"
            "\n\nevent: content_block_start\n"
            R"(data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})"
            "\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nevent: content_block_delta\n"
            R"(data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" kernel"}})"
            "\n\n");
  EXPECT_EQ(answer.chunk(0, test::tokens({test::kSnow0}, "")), "") << "text that is held back is no event";
  EXPECT_EQ(answer.chunk(0, test::end(FinishReason::kStop, "", "is")),
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n");
  EXPECT_EQ(answer.last_chunks(),
            "event: message_delta\n"
            R"(data: {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"is"},"usage":)"
            R"({"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,"output_tokens":2}})"
            "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

TEST(MessageAnswer, ThoughtsTextsAndCallsAreBlocks) {
  MessageAnswer answer = message_answer(/*in_reasoning=*/true);
  std::string stream;
  for (const GenerateEvent& event : message_events("So.</think>\n\nHere.\n" + std::string(kMessageCall), FinishReason::kStop))
    stream += answer.chunk(0, event);
  stream += answer.last_chunks();
  std::size_t at = 0;
  for (const char* piece :
       {R"("index":0,"content_block":{"type":"thinking","thinking":"","signature":""}})",
        R"("index":0,"delta":{"type":"thinking_delta","thinking":"S)",
        R"("index":0,"delta":{"type":"signature_delta","signature":"msg_7"}})", R"("type":"content_block_stop","index":0})",
        R"("index":1,"content_block":{"type":"text","text":""}})", R"("index":1,"delta":{"type":"text_delta","text":"H)",
        R"("type":"content_block_stop","index":1})", R"("index":2,"content_block":{"type":"tool_use","id":"toolu_)",
        R"(,"name":"weather","input":{}}})", R"("index":2,"delta":{"type":"input_json_delta","partial_json":"{\"days\": 2)",
        R"("type":"content_block_stop","index":2})", R"("stop_reason":"tool_use","stop_sequence":null)",
        R"({"type":"message_stop"})"}) {
    const std::size_t found = stream.find(piece, at);
    ASSERT_NE(found, std::string::npos) << piece << " in " << stream.substr(at);
    at = found;
  }
}

TEST(MessageAnswer, WholeSaysEveryField) {
  ordered_json whole =
      whole_of(message_answer(true), "So.</think>\n\nHere.\n" + std::string(kMessageCall), FinishReason::kStop);
  const std::string id = whole.at("content")[2].at("id");
  EXPECT_TRUE(id.starts_with("toolu_"));
  const int64_t num_tokens = whole.at("usage").at("output_tokens");
  EXPECT_EQ(
      dump(whole),
      R"({"id":"msg_7","type":"message","role":"assistant","model":"demo","content":[{"type":"thinking","thinking":"So.",)"
      R"("signature":"msg_7"},{"type":"text","text":"Here."},{"type":"tool_use","id":")" +
          id + R"(","name":"weather","input":{"days":2}}],"stop_reason":"tool_use","stop_sequence":null,"usage":)" +
          R"({"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":)" +
          std::to_string(num_tokens) + "}}");
}

TEST(MessageAnswer, ReasonsToStop) {
  const auto reason = [](const std::string& text, FinishReason finish, const std::string& stop = "") {
    const ordered_json whole = whole_of(message_answer(), text, finish, stop);
    return whole.at("stop_reason").get<std::string>() + "," + dump(whole.at("stop_sequence"));
  };
  EXPECT_EQ(reason("Here", FinishReason::kStop), "end_turn,null");
  EXPECT_EQ(reason("Here", FinishReason::kStop, "x"), R"(stop_sequence,"x")");
  EXPECT_EQ(reason("Here", FinishReason::kLength), "max_tokens,null");
  EXPECT_EQ(reason(kMessageCall, FinishReason::kStop), "tool_use,null");
  EXPECT_EQ(reason(std::string(kMessageCall).substr(0, 50), FinishReason::kLength), "max_tokens,null") << "a call that is cut";
}

TEST(MessageAnswer, ThoughtsMayBeLeftOut) {
  const ordered_json whole =
      whole_of(message_answer(true, /*shows_thought=*/false), "So.</think>\n\nHere.", FinishReason::kStop);
  EXPECT_EQ(whole.at("content")[0].at("thinking"), "");
  MessageAnswer answer = message_answer(true, false);
  std::string stream;
  for (const GenerateEvent& event : message_events("So.</think>\n\nHere.", FinishReason::kStop))
    stream += answer.chunk(0, event);
  EXPECT_EQ(stream.find("thinking_delta"), std::string::npos);
  EXPECT_NE(stream.find("signature_delta"), std::string::npos);
}

}  // namespace
}  // namespace ferry::api::anthropic
