#include <gtest/gtest.h>

#include <string>

#include "runtime/server/api/api_error.h"
#include "runtime/server/openai/responses_answer.h"
#include "runtime/server/openai/responses_request.h"
#include "tests/runtime/server/openai/demo_tokens.h"

// POST /v1/responses: what its bodies mean, and how its answers are told.

namespace ferry::api::openai {
namespace {

ApiSettings response_settings() {
  ApiSettings settings;
  settings.model_names = {"demo"};
  settings.context_length = 100;
  settings.vocab_size = 6144;
  settings.defaults.temperature = 0.6;
  return settings;
}

ResponsesRequest parsed(const std::string& body) {
  static const HttpRequest request;
  return parse_responses(ordered_json::parse(body), request, response_settings());
}
/// With an input and `fields`.
ResponsesRequest with(const std::string& fields) {
  return parsed(R"({"input":"hi")" + (fields.empty() ? "" : "," + fields) + "}");
}
std::string refusal_of(const std::string& fields) {
  try {
    with(fields);
  } catch (const std::exception&) {
    return current_error().json();
  }
  return "";
}
/// The messages of `input`.
std::string messages_of(const std::string& input, const std::string& fields = "") {
  return dump(parsed(R"({"input":)" + input + (fields.empty() ? "" : "," + fields) + "}").conversation.prompt.input.messages);
}

TEST(ResponsesRequest, ATextIsTheUsers) {
  EXPECT_EQ(messages_of(R"("hi")"), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(messages_of(R"("hi")", R"("instructions":"Be brief.")"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])");
}

TEST(ResponsesRequest, InstructionsAndDevelopersAreOneSystem) {
  EXPECT_EQ(messages_of(R"([{"role":"developer","content":"b"},{"role":"user","content":[{"type":"input_text","text":"c"}]},)"
                        R"({"role":"system","content":"d"}])",
                        R"("instructions":"a")"),
            R"([{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"user","content":"c"},{"role":"system","content":"d"}])");
}

TEST(ResponsesRequest, ItemsOfTheAssistantAreOneTurn) {
  EXPECT_EQ(
      messages_of(R"([{"role":"user","content":"a"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text",)"
                  R"("text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]},)"
                  R"({"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"},)"
                  R"({"type":"function_call","call_id":"c2","name":"g","arguments":""},)"
                  R"({"type":"function_call_output","call_id":"c1","output":"1"},)"
                  R"({"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"mm"},)"
                  R"({"role":"assistant","content":"d"}])"),
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning":"hm","reasoning_content":"hm",)"
      R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}},)"
      R"({"id":"c2","type":"function","function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"1"},)"
      R"({"role":"assistant","content":"d","reasoning":"mm","reasoning_content":"mm"}])");
}

TEST(ResponsesRequest, PicturesAreParts) {
  const ResponsesRequest read = parsed(
      R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:,x"},{"type":"input_text","text":"?"}]}]})");
  EXPECT_EQ(dump(read.conversation.prompt.input.messages),
            R"([{"role":"user","content":[{"type":"image"},{"type":"text","text":"?"}]}])");
  EXPECT_EQ(read.conversation.prompt.picture_urls, (std::vector<std::string>{"data:,x"}));
}

TEST(ResponsesRequest, FieldsAreRead) {
  const ResponsesRequest read = with(
      R"("max_output_tokens":9,"temperature":0,"stream":true,"parallel_tool_calls":false,"reasoning":{"effort":"none"},)"
      R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":null}],)"
      R"("tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"null"}}},)"
      R"("include":["reasoning.encrypted_content"],"store":true,"metadata":{"a":"b"})");
  EXPECT_EQ(read.conversation.generation.max_tokens, 9);
  EXPECT_EQ(read.conversation.generation.sampling.temperature, 0.0F);
  EXPECT_TRUE(read.conversation.generation.streams);
  EXPECT_FALSE(read.conversation.parallel_tool_calls);
  EXPECT_EQ(read.conversation.prompt.input.kwargs.at("enable_thinking"), false);
  EXPECT_EQ(read.conversation.tool_choice.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(dump(read.conversation.prompt.input.tools),
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(read.conversation.generation.constraint.value().param, "text.format.schema");
  EXPECT_TRUE(read.returns_thought);
  EXPECT_EQ(dump(read.echoed.at("metadata")), R"({"a":"b"})");
  EXPECT_EQ(read.echoed.at("temperature"), 0);
  EXPECT_EQ(with("").echoed.at("temperature"), 0.6);
}

TEST(ResponsesRequest, WhatIsNotServedIsRefusedByName) {
  for (const auto& [fields, name] :
       {std::pair(R"("previous_response_id":"resp_1")", "previous_response_id"),
        {R"("conversation":"c")", "conversation"},
        {R"("background":true)", "background"},
        {R"("prompt":{"id":"p"})", "prompt"},
        {R"("truncation":"auto")", "truncation"},
        {R"("top_logprobs":2)", "top_logprobs"},
        {R"("max_tokens":2)", "max_tokens"},
        {R"("n":2,"temperature":1)", "n"},
        {R"("include":["message.output_text.logprobs"])", "include"},
        {R"("text":{"verbosity":"low"})", "text.verbosity"},
        {R"("text":{"format":{"type":"grammar"}})", "text.format.type"},
        {R"("reasoning":{"summary":"detailed"})", "reasoning.summary"},
        {R"("reasoning":{"effort":"huge"})", "reasoning.effort"},
        {R"("tools":[{"type":"web_search"}])", "tools[0].type"},
        {R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"mcp"})", "tool_choice.type"},
        {R"("tool_choice":"required")", "tool_choice"},
        {R"("max_output_tokens":0)", "max_output_tokens"}}) {
    EXPECT_NE(refusal_of(fields).find("\"param\":\"" + std::string(name) + "\",\"code\":400"), std::string::npos)
        << fields << ": " << refusal_of(fields);
  }
  EXPECT_EQ(refusal_of(R"("background":false,"store":false,"conversation":null,"user":"u","service_tier":"auto")"), "");
  for (const char* input : {"[]", "1", R"([1])", R"([{"type":"item_reference","id":"i"}])", R"([{"role":"user"}])",
                            R"([{"role":"tool","content":"x"}])", R"([{"role":"user","content":[{"type":"input_file"}]}])",
                            R"([{"type":"function_call","name":"f","arguments":"{}"}])"}) {
    EXPECT_THROW(messages_of(input), ApiError) << input;
  }
}

constexpr const char* kResponseTools =
    R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"days":{"type":"integer"}}}}}])";

ResponsesAnswer response_answer(bool in_reasoning = false, bool returns_thought = false) {
  ReplyReading reading{.tools = ToolSet::parse(ordered_json::parse(kResponseTools)),
                       .prompt_ids = {test::kThe, test::kKernel},
                       .starts_in_reasoning = in_reasoning};
  return ResponsesAnswer(
      {.id = "resp_7", .model = "demo", .created = 5, .echoed = {{"user", "u"}}, .returns_thought = returns_thought},
      std::move(reading), test::demo_tokenizer());
}

std::vector<GenerateEvent> response_events(const std::string& text, FinishReason reason) {
  std::vector<GenerateEvent> events;
  for (const TokenId id : test::demo_tokenizer().encode(text))
    events.push_back(test::tokens({id}, std::string(test::demo_tokenizer().token_bytes(id))));
  events.push_back(test::end(reason));
  return events;
}

/// The events' data, whose names and numbers are checked.
std::vector<ordered_json> streamed(ResponsesAnswer& answer, const std::string& text, FinishReason reason) {
  std::string stream;
  for (const GenerateEvent& event : response_events(text, reason)) stream += answer.chunk(0, event);
  stream += answer.last_chunks();
  std::vector<ordered_json> told;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t data = stream.find("\ndata: ", at);
    const std::size_t end = stream.find("\n\n", at);
    told.push_back(ordered_json::parse(stream.substr(data + 7, end - data - 7)));
    EXPECT_EQ(stream.substr(at, data - at), "event: " + told.back().at("type").get<std::string>());
    EXPECT_EQ(told.back().at("sequence_number"), told.size() - 1);
    at = end + 2;
  }
  return told;
}

/// Names of events, those of deltas once in a row.
std::vector<std::string> names_of(const std::vector<ordered_json>& events) {
  std::vector<std::string> names;
  for (const ordered_json& event : events) {
    const auto& name = event.at("type").get_ref<const std::string&>();
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

TEST(ResponsesAnswer, AStreamTellsItemByItem) {
  ResponsesAnswer answer = response_answer(/*in_reasoning=*/true);
  const std::vector<ordered_json> events = streamed(
      answer,
      "So.</think>\n\nHere.\n<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
      FinishReason::kStop);
  EXPECT_EQ(names_of(events),
            (std::vector<std::string>{
                "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                "response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.done",
                "response.output_item.done", "response.output_item.added", "response.content_part.added",
                "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                "response.output_item.done", "response.output_item.added", "response.function_call_arguments.delta",
                "response.function_call_arguments.done", "response.output_item.done", "response.completed"}));
  const ordered_json& output = events.back().at("response").at("output");
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(output[0].at("content")[0].at("text"), "So.");
  EXPECT_EQ(output[1].at("content")[0].at("text"), "Here.");
  EXPECT_EQ(output[2].at("arguments"), R"({"days": 2})");
  EXPECT_EQ(output[2].at("status"), "completed");
  EXPECT_EQ(events.back().at("response").at("status"), "completed");
  std::vector<std::string> texts(3);
  std::vector<ordered_json> done;
  for (const ordered_json& event : events) {
    if (event.contains("delta")) {
      texts[event.at("output_index").get<std::size_t>()] += event.at("delta").get<std::string>();
      EXPECT_EQ(event.at("item_id"), output[event.at("output_index").get<std::size_t>()].at("id"));
    }
    if (event.at("type") == "response.output_item.done") done.push_back(event.at("item"));
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"So.", "Here.", R"({"days": 2})"}));
  EXPECT_EQ(ordered_json(done), output);
}

TEST(ResponsesAnswer, WholeSaysEveryField) {
  ResponsesAnswer answer = response_answer();
  answer.keep(0, test::tokens({test::kKernel}, " kernel"));
  GenerateEvent last = test::end(FinishReason::kStop);
  last.cached_tokens = 1;
  answer.keep(0, last);
  const ordered_json whole = ordered_json::parse(answer.whole());
  const std::string item_id = whole.at("output")[0].at("id");
  EXPECT_TRUE(item_id.starts_with("msg_"));
  EXPECT_EQ(
      dump(whole),
      R"({"id":"resp_7","object":"response","created_at":5,"status":"completed","background":false,"error":null,)"
      R"("incomplete_details":null,"model":"demo","output":[{"id":")" +
          item_id +
          R"(","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":" kernel",)"
          R"("annotations":[],"logprobs":[]}]}],"max_tool_calls":null,"previous_response_id":null,"service_tier":"default",)"
          R"("store":false,"top_logprobs":0,"truncation":"disabled","usage":{"input_tokens":2,"input_tokens_details":)"
          R"({"cached_tokens":1,"cache_write_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},)"
          R"("total_tokens":3},"user":"u"})");
}

TEST(ResponsesAnswer, WhatIsCutIsIncomplete) {
  ResponsesAnswer answer = response_answer();
  const std::vector<ordered_json> events = streamed(answer, "Here", FinishReason::kLength);
  EXPECT_EQ(events.back().at("type"), "response.incomplete");
  const ordered_json& response = events.back().at("response");
  EXPECT_EQ(dump(response.at("incomplete_details")), R"({"reason":"max_output_tokens"})");
  EXPECT_EQ(response.at("output")[0].at("status"), "incomplete");
  EXPECT_EQ(events[events.size() - 2].at("item").at("status"), "incomplete");
}

TEST(ResponsesAnswer, AThoughtCanBeGivenBack) {
  for (const bool returns : {false, true}) {
    ResponsesAnswer answer = response_answer(/*in_reasoning=*/true, returns);
    for (const GenerateEvent& event : response_events("So.</think>", FinishReason::kStop)) answer.keep(0, event);
    const ordered_json thought = ordered_json::parse(answer.whole()).at("output")[0];
    EXPECT_EQ(thought.at("encrypted_content"), returns ? ordered_json("So.") : ordered_json());
  }
}

TEST(ResponsesAnswer, AnErrorEndsTheStreamAsFailed) {
  ResponsesAnswer answer = response_answer();
  const std::string text = answer.failed(ApiError(Error(ErrorCode::kUnavailable, "rank 1 was lost"))).value_or("");
  EXPECT_TRUE(text.starts_with("event: response.created\n")) << text;
  EXPECT_NE(text.find("event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":2,"), std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("error":{"code":"server_error","message":"rank 1 was lost"})"), std::string::npos) << text;
}

}  // namespace
}  // namespace ferry::api::openai
