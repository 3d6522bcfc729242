#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/grammar/grammar_engine.h"
#include "runtime/schedule/token_grammar.h"
#include "runtime/server/api/api_context.h"
#include "runtime/server/api/api_service.h"
#include "runtime/server/http/http_server.h"
#include "runtime/server/log/request_note.h"
#include "runtime/server/openai/openai_routes.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/openai/demo_tokens.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"

// Calls from a client's bytes to the engine and back.

namespace ferry::api::openai {
namespace {

using nlohmann::json;
using test::end;
using test::kIs;
using test::kKernel;
using test::RawClient;
using test::status_of;
using test::tokens;

class OpenAiServiceTest : public ::testing::Test {
 protected:
  OpenAiServiceTest() {
    settings_.model_names = {"demo"};
    settings_.model_path = "launch/demo";
    settings_.context_length = 77;
    settings_.vocab_size = 1009;
    settings_.keep_alive_s = 0;
  }

  void serve() {
    service_ = std::make_unique<ApiService>(engine_, settings_);
    HttpRouter router;
    add_openai_routes(router, service_->context());
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = test::patient_limits(), .observe = observe_}, access_,
                    std::move(router));
  }
  void TearDown() override {
    if (service_ != nullptr) service_->finish_prompts(std::chrono::steady_clock::now());
    server_.reset();
  }

  RawClient client() { return RawClient(server_->address()); }
  static std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }
  std::string post(const std::string& path, const std::string& body) { return client().ask("POST " + path, body); }
  std::string get(const std::string& path) { return client().ask("GET " + path); }
  /// A client that has asked and not read.
  RawClient asker(const std::string& path, const std::string& body, const std::string& headers = "") {
    RawClient one = client();
    one.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
             "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return one;
  }
  void wait_until_idle() {
    eventually([&] { return json::parse(body_of(get("/load"))).at("server_load") == 0; }, "no call to be open",
               [&] { return get("/load"); });
  }

  test::FakeEngineClient engine_;
  ApiSettings settings_;
  Access access_;
  HttpObserver observe_;
  std::unique_ptr<ApiService> service_;
  std::optional<HttpServer> server_;  // ends before what it calls
};

constexpr const char* kPrompt = R"({"prompt":[1,2],"request_id":"a","max_tokens":5})";

TEST_F(OpenAiServiceTest, ModelsAreListedAndFoundByName) {
  settings_.model_names = {"one", "two", "org/name"};
  serve();
  const json list = json::parse(body_of(get("/v1/models")));
  EXPECT_EQ(list.at("data").size(), 3U);
  EXPECT_EQ(list.at("data")[0].at("id"), "one");
  EXPECT_EQ(list.at("data")[0].at("owned_by"), "vllm");
  EXPECT_EQ(list.at("data")[0].at("max_model_len"), 77);
  EXPECT_EQ(get("/models"), get("/v1/models"));
  EXPECT_EQ(json::parse(body_of(get("/v1/models/two"))).at("id"), "two");
  EXPECT_EQ(status_of(get("/v1/models/three")), 404);
  for (const char* path : {"/v1/models/org%2Fname", "/v1/models/org%2fname", "/v1/models/org/name", "/models/org%2Fname"})
    EXPECT_EQ(json::parse(body_of(get(path))).at("id"), "org/name") << path;
  EXPECT_EQ(status_of(get("/v1/models/org%252Fname")), 404);
  EXPECT_EQ(status_of(get("/v1/models/name")), 404);
  EXPECT_TRUE(json::parse(body_of(get("/version"))).at("version").is_string());
}

TEST_F(OpenAiServiceTest, PingFollowsTheEngine) {
  serve();
  EXPECT_EQ(status_of(get("/ping")), 200);
  EXPECT_EQ(status_of(client().ask("POST /ping")), 200);
  engine_.fail(Error(ErrorCode::kUnavailable, "rank 1 was lost"));
  EXPECT_EQ(status_of(get("/ping")), 503);
}

TEST_F(OpenAiServiceTest, ACompletionIsAnsweredAsAWhole) {
  serve();
  RawClient one = asker("/v1/completions", kPrompt);
  const Request request = engine_.wait_for_request("cmpl-a");
  EXPECT_EQ(request.prompt, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(request.sampling.max_tokens, 5);
  engine_.send("cmpl-a", tokens({kKernel}, " kernel"));
  engine_.send("cmpl-a", end(FinishReason::kLength));
  const std::string answer = one.read_answer();
  EXPECT_EQ(status_of(answer), 200);
  const json body = json::parse(body_of(answer));
  EXPECT_EQ(body.at("id"), "cmpl-a");
  EXPECT_EQ(body.at("choices")[0].at("text"), " kernel");
  wait_until_idle();
}

TEST_F(OpenAiServiceTest, AStreamIsWrittenAsItComes) {
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1,2],"request_id":"a","stream":true})");
  engine_.wait_for_request("cmpl-a");
  engine_.send("cmpl-a", tokens({kKernel}, " kernel"));
  const std::string head = one.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream; charset=utf-8\r\n"), std::string::npos) << head;
  EXPECT_NE(one.read_chunk().find(R"("text":" kernel")"), std::string::npos);
  engine_.send("cmpl-a", end(FinishReason::kStop));
  EXPECT_NE(one.read_chunk().find(R"("finish_reason":"stop")"), std::string::npos);
  EXPECT_EQ(one.read_chunk(), "data: [DONE]\n\n");
}

TEST_F(OpenAiServiceTest, AChatIsRenderedAndStreamed) {
  serve();
  RawClient one = asker("/v1/chat/completions",
                        R"({"messages":[{"role":"user","content":"hi"}],"request_id":"a","stream":true,"model":"demo"})");
  const Request request = engine_.wait_for_request("chatcmpl-a");
  EXPECT_EQ(request.sampling.max_tokens, engine_.prompt_bounds().max_tokens + 1 - std::ssize(request.prompt));
  engine_.send("chatcmpl-a", tokens({kIs}, "is"));
  one.read_until("\r\n\r\n");
  const std::string chunk = one.read_chunk();
  EXPECT_LT(chunk.find(R"("delta":{"role":"assistant","content":""})"), chunk.find(R"("delta":{"content":"is"})")) << chunk;
  engine_.send("chatcmpl-a", end(FinishReason::kStop));
}

TEST_F(OpenAiServiceTest, WithoutATokenizerTokenIdsAreServed) {
  engine_.lose_tokenizer();
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1,2],"request_id":"a","max_tokens":5,"logprobs":1})");
  engine_.wait_for_request("cmpl-a");
  engine_.send("cmpl-a", tokens({kKernel}, "", {{.chosen = {.id = kKernel, .logprob = -0.5F, .rank = 1}, .top = {}}}));
  engine_.send("cmpl-a", end(FinishReason::kLength));
  const std::string answer = one.read_answer();
  EXPECT_EQ(status_of(answer), 200) << answer;
  const json choice = json::parse(body_of(answer)).at("choices")[0];
  EXPECT_EQ(choice.at("text"), "");
  EXPECT_EQ(choice.at("token_ids"), json::array({kKernel})) << "which is all that an answer can say";
  EXPECT_EQ(choice.at("logprobs").at("tokens"), json::array({"token_id:" + std::to_string(kKernel)}));
}

TEST_F(OpenAiServiceTest, WithoutATokenizerTextIsRefusedInOneLine) {
  engine_.lose_tokenizer();
  serve();
  const auto refuse = [&](const std::string& path, const std::string& body) {
    const std::string answer = post(path, body);
    EXPECT_EQ(status_of(answer), 400) << path << body << answer;
    const auto message = json::parse(body_of(answer)).at("error").at("message").get<std::string>();
    EXPECT_NE(message.find("tokenizer"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  refuse("/v1/completions", R"({"prompt":"The"})");
  refuse("/v1/completions", R"({"prompt":[1],"echo":true})");
  refuse("/v1/completions", R"({"prompt":[1],"bad_words":["a"]})");
  refuse("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  refuse("/v1/responses", R"({"input":"hi"})");
  refuse("/tokenize", R"({"prompt":"The"})");
  refuse("/detokenize", R"({"tokens":[1]})");
  if (GrammarEngine::is_available()) refuse("/v1/completions", R"({"prompt":[1],"guided_choice":["a"]})");
}

/// Collects the figures that a log has of calls once they have ended.
TEST_F(OpenAiServiceTest, FiguresOfCallsAreNotedForTheLog) {
  access_.keys = ApiKeys({"key-of-anna-1", "key-of-bob-22"});
  std::vector<RequestFigures> figures;  // of the I/O thread until the server has ended
  std::vector<std::optional<int>> callers;
  observe_ = [&](const HttpAnswered& answered) {
    figures.push_back(answered.note == nullptr ? RequestFigures{} : answered.note->figures());
    callers.push_back(answered.caller);
  };
  serve();
  const std::string headers = "HTTP/1.1\r\nHost: localhost\r\nx-api-key: key-of-bob-22\r\nContent-Type: application/json\r\n";
  const std::string body = R"({"prompt":[[1,2],[3]],"n":2,"request_id":"a"})";
  RawClient one = client();
  one.send("POST /v1/completions " + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  for (int i = 0; i < 4; ++i) {
    const std::string id = "cmpl-a-" + std::to_string(i);
    engine_.wait_for_request(id);
    engine_.send(id, tokens({kIs, kIs}, "isis"));
    GenerateEvent last = end(FinishReason::kLength);
    last.cached_tokens = 1;
    last.timings = {.queue_ns = 1'000'000 * (i + 1), .first_token_ns = 2'000'000 * (i + 1), .total_ns = 9'000'000};
    engine_.send(id, last);
  }
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(status_of(post("/v1/completions", "{}")), 401);
  server_.reset();
  ASSERT_EQ(figures.size(), 2U);
  EXPECT_EQ(callers, (std::vector<std::optional<int>>{1, std::nullopt}));
  EXPECT_EQ(figures[0].id, "cmpl-a");
  EXPECT_EQ(figures[0].num_choices, 4);
  EXPECT_EQ(figures[0].prompt_tokens, 3) << "a prompt counts once";
  EXPECT_EQ(figures[0].cached_tokens, 2);
  EXPECT_EQ(figures[0].completion_tokens, 8);
  EXPECT_DOUBLE_EQ(figures[0].queue_s.value(), 0.001);
  EXPECT_DOUBLE_EQ(figures[0].first_token_s.value(), 0.002);
  EXPECT_EQ(figures[1].num_choices, 0) << "a call that was refused asks for no tokens";
}

TEST_F(OpenAiServiceTest, ChoicesAreRequestsOfTheirOwn) {
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[[1],[2]],"n":2,"seed":7,"request_id":"a"})");
  for (int i = 0; i < 4; ++i) {
    const std::string id = "cmpl-a-" + std::to_string(i);
    engine_.wait_for_request(id);
    engine_.send(id, tokens({kIs}, std::to_string(i)));
    engine_.send(id, end(FinishReason::kLength));
  }
  const json choices = json::parse(body_of(one.read_answer())).at("choices");
  ASSERT_EQ(choices.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].at("index"), i);
    EXPECT_EQ(choices[i].at("text"), std::to_string(i));
  }
}

TEST_F(OpenAiServiceTest, ChoicesOfAPromptKnowThatTheyBelongTogether) {
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[[1],[2]],"n":2,"request_id":"a"})");
  RawClient lone = asker("/v1/completions", R"({"prompt":[1],"request_id":"b"})");
  for (const char* id : {"cmpl-a-0", "cmpl-a-1", "cmpl-a-2", "cmpl-a-3", "cmpl-b"}) engine_.wait_for_request(id);
  const auto siblings = [&](const char* id) { return engine_.open_request(id).siblings; };
  ASSERT_NE(siblings("cmpl-a-0"), nullptr);
  EXPECT_EQ(siblings("cmpl-a-0")->num_all, 2);
  EXPECT_EQ(siblings("cmpl-a-0"), siblings("cmpl-a-1"));
  EXPECT_EQ(siblings("cmpl-a-2"), siblings("cmpl-a-3"));
  EXPECT_NE(siblings("cmpl-a-1"), siblings("cmpl-a-2"));
  EXPECT_EQ(siblings("cmpl-b"), nullptr);
  for (const char* id : {"cmpl-a-0", "cmpl-a-1", "cmpl-a-2", "cmpl-a-3", "cmpl-b"})
    engine_.send(id, end(FinishReason::kLength));
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(status_of(lone.read_answer()), 200);
}

TEST_F(OpenAiServiceTest, EachChoiceHasAMatcherOfItsOwn) {
  if (!GrammarEngine::is_available()) GTEST_SKIP() << "structured output is not built";
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1],"n":2,"request_id":"a","guided_choice":["The kernel"]})");
  for (const char* id : {"cmpl-a-0", "cmpl-a-1"}) engine_.wait_for_request(id);
  for (const char* id : {"cmpl-a-0", "cmpl-a-1"}) {
    const std::shared_ptr<TokenGrammar> grammar = engine_.open_request(id).grammar;
    ASSERT_NE(grammar, nullptr);
    EXPECT_FALSE(grammar->accept(kIs));
    EXPECT_TRUE(grammar->accept(test::kThe));
    EXPECT_TRUE(grammar->accept(kKernel));
    engine_.send(id, end(FinishReason::kStop));
  }
  EXPECT_EQ(status_of(one.read_answer()), 200);
}

TEST_F(OpenAiServiceTest, AGrammarBeginsBehindTheThoughtThatAPromptOpens) {
  if (!GrammarEngine::is_available()) GTEST_SKIP() << "structured output is not built";
  serve();
  const TokenId think_begin = engine_.tokenizer().id_of("<think>").value();
  const TokenId think_end = engine_.tokenizer().id_of("</think>").value();
  RawClient one = asker("/v1/completions",
                        R"({"prompt":[)" + std::to_string(think_begin) + R"(],"request_id":"a","guided_choice":["The"]})");
  const std::shared_ptr<TokenGrammar> grammar = engine_.wait_for_request("cmpl-a").grammar;
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(grammar->accept(kIs));
  EXPECT_TRUE(grammar->accept(think_end));
  EXPECT_FALSE(grammar->accept(kIs));
  EXPECT_TRUE(grammar->accept(test::kThe));
  engine_.send("cmpl-a", end(FinishReason::kStop));
}

TEST_F(OpenAiServiceTest, ForcedCallsAndBadGrammars) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}],"request_id":"a",)" + tools;
  serve();
  if (!GrammarEngine::is_available()) {
    EXPECT_EQ(status_of(post("/v1/chat/completions", chat + R"(,"tool_choice":"required"})")), 501);
    return;
  }
  RawClient one = asker("/v1/chat/completions", chat + R"(,"tool_choice":"required"})");
  const std::shared_ptr<TokenGrammar> grammar = engine_.wait_for_request("chatcmpl-a").grammar;
  ASSERT_NE(grammar, nullptr);
  EXPECT_FALSE(grammar->accept(kIs));
  EXPECT_TRUE(grammar->accept(engine_.tokenizer().id_of("<tool_call>").value()));
  engine_.send("chatcmpl-a", end(FinishReason::kStop));
  const std::string answer = post("/v1/completions", R"({"prompt":[1],"guided_grammar":"root ::= ["})");
  EXPECT_EQ(status_of(answer), 400);
  EXPECT_EQ(json::parse(body_of(answer)).at("error").at("param"), "guided_grammar");
}

/// Returns a schema whose compilation takes as much time or memory as it may: some of 300 properties have to be there.
std::string exploding_schema(int min_properties) {
  json schema = {{"type", "object"}, {"minProperties", min_properties}, {"maxProperties", 200}};
  for (int i = 0; i < 300; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "integer"}};
  return schema.dump();
}

TEST_F(OpenAiServiceTest, OneKeysGrammarsDoNotHoldUpAnothers) {
  if (!GrammarEngine::is_available()) GTEST_SKIP() << "structured output is not built";
  access_.keys = ApiKeys({"first-key-1", "second-key-2"});
  serve();
  const EngineLoad room = engine_.load();
  const int num_calls = room.max_running_requests + room.max_waiting_requests;  // as many as may wait of one key
  std::vector<RawClient> first;
  for (int i = 0; i < num_calls; ++i) {
    first.push_back(asker("/v1/completions", R"({"prompt":[1],"guided_json":)" + exploding_schema(90 + i) + "}",
                          "Authorization: Bearer first-key-1\r\n"));
  }
  eventually([&] { return service_->context().calls.count() == num_calls; }, "all calls of the first key to be open");
  RawClient second = asker("/v1/completions", R"({"prompt":[1],"request_id":"b","guided_choice":["The kernel"]})",
                           "Authorization: Bearer second-key-2\r\n");
  EXPECT_NE(engine_.wait_for_request("cmpl-b").grammar, nullptr);
  EXPECT_GT(service_->context().calls.count(), num_calls / 2) << "most calls of the first key still wait";
  engine_.send("cmpl-b", end(FinishReason::kStop));
  EXPECT_EQ(status_of(second.read_answer()), 200);
}

TEST_F(OpenAiServiceTest, MoreChoicesThanTheEngineHoldsAreRefused) {
  serve();
  const std::string answer = post("/v1/completions", R"({"prompt":[[1],[2]],"n":9})");
  EXPECT_EQ(status_of(answer), 400);
  EXPECT_NE(answer.find("18 choices"), std::string::npos) << answer;
  EXPECT_NE(answer.find("at most 16"), std::string::npos) << answer;
}

TEST_F(OpenAiServiceTest, BadRequestsAreAnsweredInTheApisForm) {
  serve();
  const std::string answer = post("/v1/completions", R"({"prompt":"x","temperature":-1})");
  EXPECT_EQ(status_of(answer), 400);
  EXPECT_EQ(json::parse(body_of(answer)).at("error").at("type"), "BadRequestError");
  EXPECT_EQ(status_of(post("/v1/completions", "{")), 400);
  EXPECT_EQ(status_of(post("/v1/completions", R"({"prompt":"x","model":"y"})")), 404);
  EXPECT_EQ(status_of(post("/v1/chat/completions", R"({"messages":[{"role":"nobody","content":"x"}]})")), 400);
  EXPECT_EQ(status_of(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":[{"type":"image_url",)"
                                                   R"("image_url":{"url":"data:image/png;base64,AAAA"}}]}]})")),
            400)
      << "there is no tower";
  wait_until_idle();
}

TEST_F(OpenAiServiceTest, AnErrorBeforeTheFirstTokenOfAStreamHasItsStatus) {
  serve();
  engine_.refuse(Error(ErrorCode::kResourceExhausted, "the queue is full"));
  const std::string answer = post("/v1/completions", R"({"prompt":[1],"stream":true})");
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_NE(answer.find("Retry-After: 1\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find(R"("type":"ServiceUnavailableError")"), std::string::npos) << answer;
}

TEST_F(OpenAiServiceTest, AnErrorLaterIsAnEventOfTheStream) {
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1],"request_id":"a","stream":true})");
  engine_.wait_for_request("cmpl-a");
  engine_.send("cmpl-a", tokens({kKernel}, " kernel"));
  one.read_until("\r\n\r\n");
  one.read_chunk();
  GenerateEvent failure = end(FinishReason::kError);
  failure.error = Error(ErrorCode::kUnavailable, "rank 1 was lost");
  engine_.send("cmpl-a", failure);
  EXPECT_EQ(one.read_chunk(),
            R"(data: {"error":{"message":"rank 1 was lost","type":"ServiceUnavailableError","param":null,"code":503}})"
            "\n\ndata: [DONE]\n\n");
}

TEST_F(OpenAiServiceTest, AFailedChoiceEndsTheOthers) {
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1],"n":2,"request_id":"a"})");
  engine_.wait_for_request("cmpl-a-0");
  engine_.wait_for_request("cmpl-a-1");
  GenerateEvent failure = end(FinishReason::kError);
  failure.error = Error(ErrorCode::kInternal, "no token can be chosen");
  engine_.send("cmpl-a-0", failure);
  EXPECT_EQ(status_of(one.read_answer()), 500);
  EXPECT_TRUE(engine_.wait_for_abort("cmpl-a-1"));
  engine_.send("cmpl-a-1", end(FinishReason::kAborted));
}

TEST_F(OpenAiServiceTest, AClientThatGoesEndsItsRequests) {
  serve();
  for (const std::string streams : {"true", "false"}) {
    RawClient one =
        asker("/v1/completions", R"({"prompt":[1],"n":2,"request_id":")" + streams + R"(","stream":)" + streams + "}");
    for (const char* choice : {"-0", "-1"}) engine_.wait_for_request("cmpl-" + streams + choice);
    one.leave();
    for (const char* choice : {"-0", "-1"}) {
      const std::string id = "cmpl-" + streams + choice;
      EXPECT_TRUE(engine_.wait_for_abort(id));
      engine_.send(id, end(FinishReason::kAborted));
    }
    wait_until_idle();
  }
}

TEST_F(OpenAiServiceTest, ADrainingServerTakesNoCalls) {
  serve();
  service_->finish_prompts(std::chrono::steady_clock::now());
  const std::string answer = post("/v1/completions", kPrompt);
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_NE(answer.find("Retry-After"), std::string::npos);
  EXPECT_EQ(status_of(post("/tokenize", R"({"prompt":"The"})")), 200);
}

TEST_F(OpenAiServiceTest, RequestIdsComeBackWhereTheyAreAskedFor) {
  settings_.echoes_request_id = true;
  serve();
  RawClient one = client();
  one.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: b\r\nContent-Type: application/json\r\n"
      "Content-Length: 14\r\n\r\n{\"prompt\":[1]}");
  engine_.wait_for_request("cmpl-b");
  engine_.send("cmpl-b", end(FinishReason::kLength));
  EXPECT_NE(one.read_answer().find("X-Request-Id: b\r\n"), std::string::npos);
}

TEST_F(OpenAiServiceTest, SilentStreamsAreKeptAlive) {
  settings_.keep_alive_s = 0.05;
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1],"request_id":"a","stream":true})");
  one.read_until("\r\n\r\n");
  EXPECT_EQ(one.read_chunk(), ": keep-alive\n\n");
  engine_.wait_for_request("cmpl-a");
  engine_.send("cmpl-a", end(FinishReason::kLength));
}

TEST_F(OpenAiServiceTest, TextAndTokens) {
  settings_.vocab_size = 6144;
  serve();
  const json read = json::parse(body_of(post("/tokenize", R"({"prompt":"The kernel is","return_token_strs":true})")));
  EXPECT_EQ(read.at("tokens"), json({443, 1023, 296}));
  EXPECT_EQ(read.at("count"), 3);
  EXPECT_EQ(read.at("max_model_len"), 77);
  EXPECT_EQ(read.at("token_strs"), json({"The", " kernel", " is"}));
  EXPECT_EQ(body_of(post("/detokenize", R"({"tokens":[443,1023,296]})")), R"({"prompt":"The kernel is"})");
  EXPECT_EQ(status_of(post("/detokenize", R"({"tokens":[6144]})")), 400);
  EXPECT_EQ(status_of(post("/detokenize", R"({"tokens":["x"]})")), 400);
  EXPECT_EQ(status_of(post("/tokenize", "{}")), 400);
  EXPECT_EQ(status_of(post("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})")), 200);
  EXPECT_EQ(status_of(post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})")), 200);
}

TEST_F(OpenAiServiceTest, PromptsThatAreTooLongAreRefusedAndCanBeCut) {
  serve();
  const int64_t most = engine_.prompt_bounds().max_tokens;
  std::string ids = "1";
  for (int64_t i = 0; i < most; ++i) ids += ",2";
  const std::string answer = post("/v1/completions", R"({"prompt":[)" + ids + "]}");
  EXPECT_EQ(status_of(answer), 400);
  EXPECT_NE(answer.find("Input length (" + std::to_string(most + 1) + ") exceeds model's maximum context length"),
            std::string::npos)
      << answer;
  EXPECT_NE(answer.find("allowed: at most 100000, by --memory"), std::string::npos) << answer;
  std::string words = "river";
  for (int64_t i = 0; i < most; ++i) words += " river";
  const std::string text_answer = post("/v1/completions", R"({"prompt":")" + words + R"("})");
  EXPECT_EQ(status_of(text_answer), 400);
  EXPECT_NE(text_answer.find("prompt is too long, its text has more than 100000 tokens; allowed: at most 100000, by --memory"),
            std::string::npos)
      << text_answer;
  const auto cut = [&](const std::string& fields, const std::string& id) {
    RawClient one = asker("/v1/completions", R"({"prompt":[7,8,9],"request_id":")" + id + R"(",)" + fields + "}");
    const std::vector<TokenId> prompt = engine_.wait_for_request("cmpl-" + id).prompt;
    engine_.send("cmpl-" + id, end(FinishReason::kLength));
    one.read_answer();
    return prompt;
  };
  EXPECT_EQ(cut(R"("truncate_prompt_tokens":2)", "l"), (std::vector<TokenId>{8, 9}));
  EXPECT_EQ(cut(R"("truncate_prompt_tokens":2,"truncation_side":"right")", "r"), (std::vector<TokenId>{7, 8}));
}

}  // namespace
}  // namespace ferry::api::openai
