#include <gtest/gtest.h>

#include <string>

#include "runtime/server/api/api_error.h"
#include "runtime/server/openai/chat_request.h"
#include "runtime/server/openai/completion_request.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/openai/demo_tokens.h"

namespace ferry::api::openai {
namespace {

ApiSettings settings_of() {
  ApiSettings settings;
  settings.model_names = {"demo", "other"};
  settings.context_length = 100;
  settings.vocab_size = 6144;
  settings.defaults.temperature = 0.6;
  settings.defaults.top_k = 20;
  settings.defaults.top_p = 0.95;
  return settings;
}

const HttpRequest& no_headers() {
  static const HttpRequest request;
  return request;
}

/// A body with a message or a prompt, and `fields`.
ordered_json chat_body(const std::string& fields) {
  return ordered_json::parse(R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}");
}
ordered_json completion_body(const std::string& fields) {
  return ordered_json::parse(R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}");
}

ChatRequest chat(const std::string& fields = "") { return parse_chat(chat_body(fields), no_headers(), settings_of()); }
CompletionRequest completion(const std::string& fields = "") {
  return parse_completion(completion_body(fields), no_headers(), settings_of());
}

/// The error's JSON, empty if there is none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const std::exception&) {
    return current_error().json();
  }
  return "";
}
std::string chat_error(const std::string& fields) {
  return error_of([&] { chat(fields); });
}
std::string completion_error(const std::string& fields) {
  return error_of([&] { completion(fields); });
}
std::string bad_request(const std::string& message, const std::string& param) {
  return R"({"error":{"message":")" + message + R"(","type":"BadRequestError","param":")" + param + R"(","code":400}})";
}

TEST(ApiRequest, ErrorsAreVllms) {
  EXPECT_EQ(chat_error(R"("model":"nope")"),
            R"({"error":{"message":"The model `nope` does not exist.","type":"NotFoundError","param":"model","code":404}})");
  EXPECT_EQ(chat_error(R"("stream_options":{"include_usage":true})"),
            bad_request("Stream options can only be defined when `stream=True`.", "stream_options"));
  EXPECT_EQ(chat_error(R"("top_logprobs":2)"),
            bad_request("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs"));
  EXPECT_EQ(chat_error(R"("tool_choice":"auto")"),
            bad_request("When using `tool_choice`, `tools` must be set.", "tool_choice"));
  EXPECT_EQ(
      chat_error(R"("tools":[])"),
      bad_request("`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.", "tools"));
  EXPECT_EQ(error_of([] { parse_completion(ordered_json::parse(R"({"prompt":""})"), no_headers(), settings_of()); }),
            bad_request("Either prompt or prompt_embeds must be provided and non-empty.", "prompt"));
  EXPECT_EQ(error_of([] { parse_chat(ordered_json::parse(R"({"messages":[]})"), no_headers(), settings_of()); }),
            bad_request("messages: Validation error: messages cannot be empty", "messages"));
  EXPECT_EQ(error_of([] { parse_chat(ordered_json::parse("{}"), no_headers(), settings_of()); }),
            R"({"error":{"message":"missing field `messages`","type":"Bad Request","param":"messages","code":400}})");
}

TEST(ApiRequest, BodiesThatAreNoObjectAreBadRequests) {
  const ServerLimits limits;
  for (const char* body : {"{", "", "[]", "3", "{\"a\":1} x"}) {
    const std::string error = error_of([&] { read_body(body, limits); });
    EXPECT_NE(error.find(R"("type":"Bad Request","param":null,"code":400)"), std::string::npos) << body << error;
  }
  std::string wide = "{";
  for (int i = 0; i < 1025; ++i) wide += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  EXPECT_NE(error_of([&] { read_body(wide + "}", limits); }).find("more members than 1024"), std::string::npos);
}

TEST(ApiRequest, UnknownFieldsAreAccepted) {
  EXPECT_EQ(chat_error(R"("user":"u","store":true,"metadata":{"a":1},"service_tier":"auto","a_new_one":[1],"session_id":"s")"),
            "");
  EXPECT_EQ(chat_error(R"("guided_json":null,"suffix":null,"response_format":{"type":"text"},"best_of":1,"priority":0)"), "");
}

TEST(ApiRequest, WhatIsNotServedIsRefusedByName) {
  for (const char* name : {"suffix", "guided_whitespace_pattern", "logprob_token_ids", "prompt_embeds", "chat_template",
                           "kv_transfer_params", "functions"}) {
    const std::string field = std::string("\"") + name + R"(":["x"])";
    EXPECT_EQ(completion_error(field), bad_request(std::string(name) + " is not supported.", name));
  }
  EXPECT_EQ(chat_error(R"("priority":1)"), bad_request("Got priority 1 but Priority scheduling is not enabled.", "priority"));
  EXPECT_NE(chat_error(R"("use_beam_search":true)").find("use_beam_search"), std::string::npos);
  EXPECT_NE(chat_error(R"("best_of":3,"n":2)").find("best_of"), std::string::npos);
  EXPECT_NE(chat_error(R"("modalities":["text","audio"])").find("modalities"), std::string::npos);
}

TEST(ApiRequest, PrioritiesCountWhereTheServerGoesByThem) {
  ApiSettings settings = settings_of();
  settings.takes_priorities = true;
  const auto priority_of = [&](const std::string& field) {
    const ordered_json body = ordered_json::parse(R"({"prompt":"x")" + field + "}");
    return parse_completion(body, no_headers(), settings).generation.priority;
  };
  EXPECT_EQ(priority_of(""), 0);
  EXPECT_EQ(priority_of(R"(,"priority":-7)"), -7);
  EXPECT_EQ(priority_of(R"(,"priority":9223372036854775807)"), INT64_MAX);
  EXPECT_NE(chat_error(R"("priority":"high")").find("priority"), std::string::npos);
}

TEST(ApiRequest, AKeyIsAnAccountAndElseAUserIs) {
  const auto account_of = [](const std::string& field, std::optional<int> key) {
    const ordered_json body = ordered_json::parse(R"({"prompt":"x")" + field + "}");
    return parse_completion(body, {.caller = key}, settings_of()).generation.account;
  };
  EXPECT_EQ(account_of("", {}), "");
  EXPECT_EQ(account_of(R"(,"user":"u")", {}), "user u");
  EXPECT_EQ(account_of(R"(,"user":7)", {}), "");
  EXPECT_EQ(account_of(R"(,"user":"u")", 3), account_of(R"(,"user":"v")", 3)) << "a key cannot have more by naming users";
  EXPECT_NE(account_of("", 3), account_of("", 4));
  EXPECT_LE(account_of(R"(,"user":")" + std::string(100'000, 'u') + "\"", {}).size(), 300U);
}

TEST(ApiRequest, AThoughtMayHaveABound) {
  EXPECT_EQ(chat().generation.thinking_budget, std::nullopt);
  EXPECT_EQ(chat(R"("thinking_token_budget":-1)").generation.thinking_budget, std::nullopt);
  EXPECT_EQ(chat(R"("thinking_token_budget":10)").generation.thinking_budget, 10);
  EXPECT_NE(chat_error(R"("thinking_token_budget":-2)").find("thinking_token_budget"), std::string::npos);
}

TEST(ApiRequest, BiasesAreBoundedBeforeTheyAreCompared) {
  std::string biases = "\"logit_bias\":{\"0\":1";
  for (int id = 1; id < 1024; ++id) biases += ",\"" + std::to_string(id) + "\":1";
  EXPECT_EQ(chat(biases + "}").generation.sampling.logit_bias.size(), 1024U);
  EXPECT_NE(chat_error(biases + ",\"1024\":1}").find("more than 1024"), std::string::npos);
}

/// The constraint of `fields`, which both routes have alike.
OutputConstraint constraint_of(const std::string& fields) {
  const std::optional<OutputConstraint> of_chat = chat(fields).generation.constraint;
  const std::optional<OutputConstraint> of_completion = completion(fields).generation.constraint;
  EXPECT_TRUE(of_chat && of_completion && of_chat->spec == of_completion->spec) << fields;
  return of_completion.value_or(OutputConstraint{});
}

TEST(ApiRequest, ConstraintsAreReadInAllSpellings) {
  EXPECT_FALSE(completion(R"("response_format":{"type":"text"})").generation.constraint);
  EXPECT_EQ(constraint_of(R"("response_format":{"type":"json_object"})").param, "response_format");
  const GrammarSpec schema = json_schema_grammar(ordered_json::parse(R"({"type":"integer"})"), "");
  EXPECT_EQ(constraint_of(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer"}}})").spec,
            schema);
  EXPECT_EQ(constraint_of(R"("structured_outputs":{"json":{"type":"integer"}})").spec, schema);
  EXPECT_EQ(constraint_of(R"("guided_json":{"type":"integer"})").spec, schema);
  EXPECT_EQ(constraint_of(R"("guided_json":"{\"type\":\"integer\"}")").spec, schema);
  EXPECT_EQ(constraint_of(R"("guided_regex":"a+")").spec, regex_grammar("a+", ""));
  EXPECT_EQ(constraint_of(R"("guided_choice":["a","b"])").spec, choice_grammar({"a", "b"}, ""));
  EXPECT_EQ(constraint_of(R"("guided_grammar":"root ::= \"a\"")").spec, ebnf_grammar(R"(root ::= "a")", ""));
  EXPECT_EQ(constraint_of(R"("guided_grammar":"root ::= \"a\"")").param, "guided_grammar");
}

TEST(ApiRequest, ConstraintsThatCannotBeKeptAreRefusedByName) {
  const std::string one_kind = "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').";
  EXPECT_EQ(completion_error(R"("guided_regex":"a","guided_choice":["b"])"), bad_request(one_kind, "guided_choice"));
  EXPECT_EQ(chat_error(R"("response_format":{"type":"json_object"},"structured_outputs":{"regex":"a"})"),
            bad_request(one_kind, "structured_outputs"));
  EXPECT_EQ(completion_error(R"("guided_json":{"type":"array","contains":{}})"),
            bad_request("structured_outputs.json.contains: is not supported", "guided_json"));
  EXPECT_EQ(chat_error(R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})"),
            bad_request("response_format.json_schema.schema: a JSON schema is needed", "response_format"));
  EXPECT_NE(chat_error(R"("response_format":"json")").find(R"("param":"response_format","code":400)"), std::string::npos);
  EXPECT_NE(chat_error(R"("structured_outputs":{})").find(R"("param":"structured_outputs","code":400)"), std::string::npos);
}

TEST(ApiRequest, ToolsConstrainWhereCallsAreForcedOrStrict) {
  const ReplyMarkers markers(test::demo_tokenizer());
  const auto constraint_with = [&](const std::string& fields, const std::string& strict = "false") {
    const ChatRequest read = chat(R"("tools":[{"type":"function","function":{"name":"f","strict":)" + strict + "}}]" + fields);
    return with_tools(read.generation.constraint, read.prompt.tools, read.tool_choice, read.parallel_tool_calls, markers);
  };
  EXPECT_FALSE(constraint_with(""));
  EXPECT_EQ(constraint_with("", "true").value().param, "tools");
  EXPECT_FALSE(constraint_with(R"(,"tool_choice":"none")", "true"));
  EXPECT_EQ(constraint_with(R"(,"tool_choice":"required")").value().param, "tool_choice");
  EXPECT_EQ(constraint_with(R"(,"tool_choice":{"type":"function","function":{"name":"f"}})").value().param, "tool_choice");
  EXPECT_EQ(constraint_with(R"(,"guided_regex":"a")").value().param, "guided_regex") << "the model may call nothing";
  EXPECT_EQ(error_of([&] { constraint_with(R"(,"guided_regex":"a","tool_choice":"required")"); }),
            bad_request("You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').",
                        "tool_choice"));
}

TEST(ApiRequest, SamplingHasTheCheckpointsDefaults) {
  const SamplingParams sampling = chat().generation.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.6F);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.95F);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.0F);
  EXPECT_FALSE(sampling.logprobs.has_value());
  ApiSettings plain = settings_of();
  plain.defaults = {};
  const SamplingParams openai = parse_chat(chat_body(""), no_headers(), plain).generation.sampling;
  EXPECT_FLOAT_EQ(openai.temperature, 1.0F);
  EXPECT_EQ(openai.top_k, 0);
  EXPECT_FLOAT_EQ(openai.top_p, 1.0F);
}

TEST(ApiRequest, SamplingIsReadFieldByField) {
  const SamplingParams sampling =
      chat(R"("temperature":0.5,"top_p":0.25,"top_k":-1,"min_p":0.125,"repetition_penalty":1.5,"presence_penalty":-2,)"
           R"("frequency_penalty":2,"logit_bias":{"5":-1000,"7":1.5},"allowed_token_ids":[5,7],"stop_token_ids":[9],)"
           R"("stop":["a","b"],"include_stop_str_in_output":true,"ignore_eos":true,"min_tokens":2,"max_tokens":3,)"
           R"("skip_special_tokens":false,"logprobs":true,"top_logprobs":4,"prompt_logprobs":1)")
          .generation.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.125F);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.5F);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, -2.0F);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 2.0F);
  ASSERT_EQ(sampling.logit_bias.size(), 2U);
  EXPECT_EQ(sampling.logit_bias[0].id, 5);
  EXPECT_FLOAT_EQ(sampling.logit_bias[0].bias, -100.0F) << "clamped";
  EXPECT_FLOAT_EQ(sampling.logit_bias[1].bias, 1.5F);
  EXPECT_EQ(sampling.allowed_token_ids, (std::vector<TokenId>{5, 7}));
  EXPECT_EQ(sampling.stop_token_ids, (std::vector<TokenId>{9}));
  EXPECT_EQ(sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(sampling.includes_stop);
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_TRUE(sampling.shows_special);
  EXPECT_EQ(sampling.logprobs, 4);
  EXPECT_EQ(sampling.prompt_logprobs, 1);
  EXPECT_EQ(chat(R"("stop":"x")").generation.sampling.stop, (std::vector<std::string>{"x"}));
  EXPECT_EQ(chat(R"("logprobs":true)").generation.sampling.logprobs, 0);
  EXPECT_EQ(chat(R"("temperature":0.000001)").generation.sampling.temperature, 0.0F) << "is greedy";
  EXPECT_EQ(chat(R"("top_k":5.0)").generation.sampling.top_k, 5);
}

TEST(ApiRequest, ValuesOutOfRangeAreRefusedByName) {
  const std::pair<const char*, const char*> bad[] = {
      {R"("temperature":-1)", "temperature"},
      {R"("temperature":"x")", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.5)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("min_p":2)", "min_p"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("presence_penalty":3)", "presence_penalty"},
      {R"("n":0)", "n"},
      {R"("n":2,"temperature":0)", "n"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("min_tokens":5,"max_tokens":4)", "min_tokens"},
      {R"("stop":[""])", "stop"},
      {R"("stop":[1])", "stop"},
      {R"("logit_bias":{"a":1})", "logit_bias"},
      {R"("logit_bias":{"6144":1})", "logit_bias"},
      {R"("logit_bias":{"7":1,"07":2})", "logit_bias"},
      {R"("allowed_token_ids":[])", "allowed_token_ids"},
      {R"("stop_token_ids":[-1])", "stop_token_ids"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":-1)", "top_logprobs"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
      {R"("seed":1.5)", "seed"},
      {R"("stream":1)", "stream"},
      {R"("request_id":"a b")", "request_id"},
      {R"("cache_salt":"a@b")", "cache_salt"},
      {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
      {R"("reasoning_effort":"huge")", "reasoning_effort"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
  };
  for (const auto& [fields, name] : bad) {
    const std::string error = chat_error(fields);
    EXPECT_NE(error.find(std::string(R"("param":")") + name + R"(","code":400)"), std::string::npos) << fields << ": " << error;
  }
}

TEST(ApiRequest, LogprobsOfTheWholeVocabularyNeedAServerThatGivesThem) {
  ApiSettings settings = settings_of();
  settings.max_logprobs = -1;
  EXPECT_EQ(parse_chat(chat_body(R"("logprobs":true,"top_logprobs":-1)"), no_headers(), settings).generation.sampling.logprobs,
            SamplingParams::kWholeVocabulary);
}

TEST(ApiRequest, TokensToMake) {
  EXPECT_EQ(completion().generation.max_tokens, 16);
  EXPECT_EQ(completion(R"("max_tokens":null)").generation.max_tokens, 16);
  EXPECT_EQ(completion(R"("max_tokens":0,"echo":true)").generation.max_tokens, 0);
  EXPECT_NE(completion_error(R"("max_tokens":0)"), "");
  EXPECT_FALSE(chat().generation.max_tokens.has_value());
  EXPECT_EQ(chat(R"("max_tokens":3,"max_completion_tokens":4)").generation.max_tokens, 4);
  ApiSettings settings = settings_of();
  settings.defaults.max_new_tokens = 9;
  EXPECT_EQ(parse_chat(chat_body(""), no_headers(), settings).generation.max_tokens, 9);
}

TEST(ApiRequest, SamplingOfAChoice) {
  const test::FakeEngineClient engine;  // takes prompts of 100,000 tokens
  const GenerationFields fields = chat(R"("seed":-1,"n":2)").generation;
  EXPECT_EQ(sampling_of(fields, engine, 99'990, 0).max_tokens, 11) << "the rest of the context";
  EXPECT_EQ(sampling_of(fields, engine, 10, 0).seed, UINT64_MAX);
  EXPECT_EQ(sampling_of(fields, engine, 10, 1).seed, 0U) << "mod 2^64";
  EXPECT_NE(chat().generation.seed, chat().generation.seed) << "each request draws for itself";
  EXPECT_EQ(sampling_of(chat(R"("max_tokens":1000000)").generation, engine, 10, 0).max_tokens, 99'991);
}

TEST(ApiRequest, Prompts) {
  const auto prompts_of = [](const char* prompt) {
    return parse_completion(ordered_json::parse(std::string(R"({"prompt":)") + prompt + "}"), no_headers(), settings_of())
        .prompts;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompts_of(R"("a")"), (std::vector<CompletionPrompt>{"a"}));
  EXPECT_EQ(prompts_of(R"(["a","b"])"), (std::vector<CompletionPrompt>{"a", "b"}));
  EXPECT_EQ(prompts_of("[1,2]"), (std::vector<CompletionPrompt>{Ids{1, 2}}));
  EXPECT_EQ(prompts_of("[[1],[2,3]]"), (std::vector<CompletionPrompt>{Ids{1}, Ids{2, 3}}));
  for (const char* bad : {"[]", "[[]]", R"(["a",""])", "3", R"([1,"a"])", "[-1]", "{}", R"([["a"]])"})
    EXPECT_NE(error_of([&] { prompts_of(bad); }).find(R"("param":"prompt","code":400)"), std::string::npos) << bad;
}

TEST(ApiRequest, EchoWithLogprobsAsksForThePrompts) {
  const CompletionRequest echoed = completion(R"("echo":true,"logprobs":2)");
  EXPECT_EQ(echoed.generation.sampling.prompt_logprobs, 2);
  EXPECT_FALSE(echoed.asks_prompt_logprobs);
  EXPECT_EQ(completion(R"("echo":true,"max_tokens":0)").generation.sampling.prompt_logprobs, 0);
  EXPECT_FALSE(completion(R"("logprobs":2)").generation.sampling.prompt_logprobs.has_value());
}

TEST(ApiRequest, IdsComeFromTheHeaderOrTheField) {
  const auto id_of = [](const std::string& fields, HttpHeaders headers) {
    HttpRequest request;
    request.headers = std::move(headers);
    return parse_chat(chat_body(fields), request, settings_of()).generation.request_id;
  };
  EXPECT_EQ(id_of(R"("request_id":"mine")", {}), "mine");
  EXPECT_EQ(id_of(R"("request_id":"mine")", {{"x-request-id", "theirs"}}), "theirs");
  EXPECT_EQ(id_of("", {}).size(), 32U);
}

TEST(ChatRequest, MessagesBecomeTheTemplates) {
  const ordered_json body = ordered_json::parse(
      R"({"messages":[{"role":"system","content":[{"type":"text","text":"a"},"b"]},)"
      R"({"role":"user","name":"u","content":[{"type":"image_url","image_url":{"url":"data:,x","detail":"low"}},{"text":"c"}]},)"
      R"({"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"1","type":"function",)"
      R"("function":{"name":"f","arguments":"{\"b\":1,\"a\":[2]}"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"d","other":1}]})");
  const ChatRequest read = parse_chat(body, no_headers(), settings_of());
  EXPECT_EQ(
      read.prompt.input.messages.dump(),
      R"([{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"user","content":[{"type":"image"},{"type":"text","text":"c"}],"name":"u"},)"
      R"({"role":"assistant","content":null,"reasoning":"r","reasoning_content":"r","tool_calls":[{"id":"1","type":"function",)"
      R"("function":{"name":"f","arguments":{"b":1,"a":[2]}}}]},)"
      R"({"role":"tool","content":"d","tool_call_id":"1"}])");
  EXPECT_EQ(read.prompt.picture_urls, (std::vector<std::string>{"data:,x"}));
  EXPECT_EQ(read.role, "assistant");
}

TEST(ChatRequest, ArgumentsThatAreNoObjectAreText) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("{\"path\": \"/tmp/a")", R"({"arguments":"{\"path\": \"/tmp/a"})"},  // cut
      {R"("null")", R"({"arguments":"null"})"},
      {"null", "{}"},  // a field that is null is as one that is not there
      {R"("[1,2]")", R"({"arguments":"[1,2]"})"},
      {"[1,2]", R"({"arguments":"[1,2]"})"},
      {R"("7")", R"({"arguments":"7"})"},
      {R"("two words")", R"({"arguments":"two words"})"},
      {R"("")", "{}"},
      {R"("{}")", "{}"},
      {R"({"a":1})", R"({"a":1})"},
  };
  for (const auto& [arguments, read] : cases) {
    const ordered_json body = ordered_json::parse(
        std::string(R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)") + arguments +
        "}}]}]}");
    const ordered_json messages = parse_chat(body, no_headers(), settings_of()).prompt.input.messages;
    EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"].dump(), read) << arguments;
  }
}

TEST(ChatRequest, BadMessagesAreNamed) {
  const std::pair<const char*, const char*> bad[] = {
      {"3", "messages[0]"},
      {R"({"content":"x"})", "messages[0].role"},
      {R"({"role":1})", "messages[0].role"},
      {R"({"role":"user","content":3})", "messages[0].content"},
      {R"({"role":"user","content":[3]})", "messages[0].content[0]"},
      {R"({"role":"user","content":[{"type":"text"}]})", "messages[0].content[0].text"},
      {R"({"role":"user","content":[{"type":"input_audio"}]})", "messages[0].content[0]"},
      {R"({"role":"user","content":[{"type":"image_url","image_url":{}}]})", "messages[0].content[0].image_url"},
      {R"({"role":"assistant","tool_calls":[{}]})", "messages[0].tool_calls[0].function"},
  };
  for (const auto& [message, param] : bad) {
    const ordered_json body = ordered_json::parse(std::string(R"({"messages":[)") + message + "]}");
    const std::string error = error_of([&] { parse_chat(body, no_headers(), settings_of()); });
    EXPECT_NE(error.find(std::string(R"("param":")") + param + R"(","code":400)"), std::string::npos) << message << error;
  }
}

TEST(ChatRequest, ConversationsHaveABound) {
  ApiSettings settings = settings_of();
  settings.limits.prompt_bytes = 3;
  const auto error = [&](const char* text) {
    const ordered_json body = {{"messages", {{{"role", "user"}, {"content", text}}}}};
    return error_of([&] { parse_chat(body, no_headers(), settings); });
  };
  EXPECT_EQ(error("abc"), "");
  EXPECT_NE(error("abcd").find("more than 3 bytes"), std::string::npos);
  settings.limits.chat_messages = 0;
  EXPECT_NE(error("a").find("at most 0"), std::string::npos);
}

TEST(ChatRequest, VariablesOfTheTemplate) {
  ApiSettings settings = settings_of();
  settings.template_kwargs = {{"enable_thinking", false}, {"x", 1}};
  const auto kwargs_of = [&](const std::string& fields) {
    return parse_chat(chat_body(fields), no_headers(), settings).prompt.input.kwargs.dump();
  };
  EXPECT_EQ(kwargs_of(""), R"({"enable_thinking":false,"x":1})");
  EXPECT_EQ(kwargs_of(R"("chat_template_kwargs":{"x":2})"), R"({"enable_thinking":false,"x":2})");
  EXPECT_EQ(kwargs_of(R"("reasoning_effort":"low")"), R"({"enable_thinking":true,"x":1,"reasoning_effort":"low"})");
  EXPECT_EQ(kwargs_of(R"("reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})"),
            R"({"enable_thinking":true,"x":1,"reasoning_effort":"none"})");
}

TEST(ChatRequest, TheLastMessageGoesOn) {
  const ordered_json body = ordered_json::parse(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"So"}],"continue_final_message":true,"echo":true})");
  const ChatRequest read = parse_chat(body, no_headers(), settings_of());
  EXPECT_TRUE(read.prompt.input.continue_final_message);
  EXPECT_FALSE(read.prompt.input.add_generation_prompt);
  EXPECT_EQ(read.role, "assistant");
  EXPECT_EQ(read.echoed, "So");
}

TEST(ChatRequest, Tools) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const auto kind_of = [&](const std::string& choice) { return chat(tools + choice).tool_choice.kind; };
  EXPECT_EQ(kind_of(""), ToolChoice::Kind::kAuto);
  EXPECT_EQ(kind_of(R"(,"tool_choice":"none")"), ToolChoice::Kind::kNone);
  EXPECT_EQ(chat(R"("tool_choice":"none")").tool_choice.kind, ToolChoice::Kind::kNone);
  EXPECT_EQ(chat(tools).prompt.input.tools.dump(), R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(kind_of(R"(,"tool_choice":"required")"), ToolChoice::Kind::kRequired);
  EXPECT_EQ(kind_of(R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"), ToolChoice::Kind::kNamed);
  EXPECT_NE(chat_error(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})"), "");
}

TEST(BadWords, StandAtTheBeginningAndBehindASpace) {
  const Tokenizer& tokenizer = test::demo_tokenizer();
  const auto ids = bad_word_ids({"The"}, tokenizer);
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_EQ(ids[0], tokenizer.encode("The"));
  EXPECT_EQ(ids[1], tokenizer.encode(" The"));
  EXPECT_EQ(bad_word_ids({" The"}, tokenizer), ids);
  EXPECT_NE(error_of([&] { bad_word_ids({" "}, tokenizer); }), "");
}

}  // namespace
}  // namespace ferry::api::openai
