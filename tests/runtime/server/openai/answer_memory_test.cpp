#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/server/api/api_service.h"
#include "runtime/server/http/http_server.h"
#include "runtime/server/openai/openai_routes.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/openai/demo_tokens.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/allocation_count.h"
#include "tests/support/eventually.h"

// What an answer may hold in memory, and calls that find none.

namespace ferry::api::openai {
namespace {

using nlohmann::json;
using test::end;
using test::kKernel;
using test::RawClient;
using test::status_of;
using test::tokens;

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

class AnswerMemoryTest : public ::testing::Test {
 protected:
  AnswerMemoryTest() {
    settings_.model_names = {"demo"};
    settings_.vocab_size = 1009;
    settings_.context_length = 100'001;
    settings_.keep_alive_s = 0;
    settings_.limits.answer_bytes = kMiB;
  }
  void serve() {
    service_ = std::make_unique<ApiService>(engine_, settings_);
    HttpRouter router;
    add_openai_routes(router, service_->context());
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = test::patient_limits()}, access_, std::move(router));
  }
  void TearDown() override {
    if (service_ != nullptr) service_->finish_prompts(std::chrono::steady_clock::now());
    server_.reset();
  }

  /// A client that has asked and not read.
  RawClient asker(const std::string& path, const std::string& body) {
    RawClient one(server_->address());
    one.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
             std::to_string(body.size()) + "\r\n\r\n" + body);
    return one;
  }
  std::string post(const std::string& path, const std::string& body) { return asker(path, body).read_answer(); }
  static json body_of(const std::string& answer) { return json::parse(answer.substr(answer.find("\r\n\r\n") + 4)); }

  /// A prompt of so many tokens.
  static std::string prompt_of(int num_tokens) {
    std::string ids = "1";
    for (int i = 1; i < num_tokens; ++i) ids += ",1";
    return "\"prompt\":[" + ids + "]";
  }
  /// Returns an event of tokens, each with its logprob.
  static GenerateEvent told(int num_tokens) {
    return tokens(std::vector<TokenId>(static_cast<std::size_t>(num_tokens), kKernel), "",
                  std::vector<TokenLogprobs>(static_cast<std::size_t>(num_tokens), test::told({kKernel, -1.5F, 1}, {})));
  }
  void answer_call(const std::string& id) {
    engine_.send(id, tokens({kKernel}, " kernel"));
    engine_.send(id, end(FinishReason::kLength));
  }
  /// A call goes through as if nothing had been.
  void expect_service() {
    RawClient one = asker("/v1/completions", R"({"prompt":[1],"request_id":"next"})");
    engine_.wait_for_request("cmpl-next");
    answer_call("cmpl-next");
    EXPECT_EQ(status_of(one.read_answer()), 200);
  }

  test::FakeEngineClient engine_;
  ApiSettings settings_;
  Access access_;
  std::unique_ptr<ApiService> service_;
  std::optional<HttpServer> server_;  // ends before what it calls
};

TEST_F(AnswerMemoryTest, WhatMayTakeTooMuchIsRefusedBeforeAnythingRuns) {
  serve();
  // 100 tokens with 20 others each take 312 kB a completion.
  const std::string scored = "{" + prompt_of(100) + R"(,"prompt_logprobs":20,"request_id":"a","n":)";
  const std::string refused = post("/v1/completions", scored + "4}");
  EXPECT_EQ(status_of(refused), 400) << refused;
  const auto message = body_of(refused).at("error").at("message").get<std::string>();
  for (const char* part : {"4 completions", "400 tokens", "--answer-bytes", "n or", "prompt_logprobs", "max_tokens"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  EXPECT_FALSE(engine_.has_seen("cmpl-a-0"));

  RawClient one = asker("/v1/completions", scored + "3}");
  for (const char* id : {"cmpl-a-0", "cmpl-a-1", "cmpl-a-2"}) engine_.wait_for_request(id);
  for (const char* id : {"cmpl-a-0", "cmpl-a-1", "cmpl-a-2"}) answer_call(id);
  EXPECT_EQ(status_of(one.read_answer()), 200);
}

TEST_F(AnswerMemoryTest, EveryFieldThatMultipliesCounts) {
  serve();
  const std::string id = R"(,"request_id":"a")";
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}])" + id;
  const std::pair<const char*, std::string> calls[] = {
      {"/v1/completions", "{" + prompt_of(100) + id + R"(,"echo":true,"logprobs":20,"n":4})"},
      {"/v1/completions", R"({"prompt":["aaaaaaaaaaaaaaaaaaaaaaaa","b","c","d"],"logprobs":20,"max_tokens":100)" + id + "}"},
      {"/v1/completions", R"({"prompt":"a","max_tokens":40000)" + id + "}"},
      {"/v1/completions", "{" + prompt_of(400) + id + R"(,"echo":true,"logprobs":20,"stream":true})"},
      {"/v1/chat/completions", chat + R"(,"logprobs":true,"top_logprobs":20,"max_tokens":400})"},
      {"/v1/chat/completions", chat + R"(,"n":16,"max_tokens":3000})"},
      {"/v1/responses", R"({"input":"hi","max_output_tokens":40000,"request_id":"a"})"},
  };
  for (const auto& [path, body] : calls) {
    const std::string answer = post(path, body);
    EXPECT_EQ(status_of(answer), 400) << path << " " << body << answer;
    EXPECT_NE(answer.find("--answer-bytes"), std::string::npos) << answer;
  }
}

TEST_F(AnswerMemoryTest, WithoutMaxTokensAsManyAsFitAreMade) {
  serve();
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}],"logprobs":true,"top_logprobs":20,"request_id":)";
  RawClient one = asker("/v1/chat/completions", chat + R"("a"})");
  const int32_t max_tokens = engine_.wait_for_request("chatcmpl-a").sampling.max_tokens;
  EXPECT_GT(max_tokens, 300);
  EXPECT_LT(max_tokens, 350);
  RawClient stream = asker("/v1/chat/completions", chat + R"("b","stream":true})");
  EXPECT_GT(engine_.wait_for_request("chatcmpl-b").sampling.max_tokens, 99'000) << "a stream keeps nothing";
  answer_call("chatcmpl-a");
  answer_call("chatcmpl-b");
  EXPECT_EQ(status_of(one.read_answer()), 200);
}

TEST_F(AnswerMemoryTest, AnAnswerThatGrowsBeyondItsBoundEndsAlone) {
  settings_.limits.answer_bytes = 64 * kKiB;
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1],"request_id":"a"})");
  engine_.wait_for_request("cmpl-a");
  engine_.send("cmpl-a", tokens({kKernel}, std::string(10'000, 'x')));
  engine_.send("cmpl-a", tokens({kKernel}, std::string(10'000, 'x')));
  const std::string answer = one.read_answer();
  EXPECT_EQ(status_of(answer), 400);
  EXPECT_NE(answer.find("--answer-bytes"), std::string::npos) << answer;
  EXPECT_TRUE(engine_.wait_for_abort("cmpl-a"));
  engine_.send("cmpl-a", end(FinishReason::kAborted));
  expect_service();
}

TEST_F(AnswerMemoryTest, AllAnswersTogetherHaveABound) {
  settings_.limits.total_answer_bytes = 100 * kKiB;
  serve();
  RawClient first = asker("/v1/completions", R"({"prompt":[1],"request_id":"a"})");
  RawClient second = asker("/v1/completions", R"({"prompt":[1],"request_id":"b"})");
  for (const char* id : {"cmpl-a", "cmpl-b"}) engine_.wait_for_request(id);
  engine_.send("cmpl-a", tokens({kKernel}, std::string(20'000, 'x')));
  engine_.send("cmpl-b", tokens({kKernel}, std::string(20'000, 'x')));
  const std::string answer = second.read_answer();
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_NE(answer.find("--total-answer-bytes"), std::string::npos) << answer;
  engine_.send("cmpl-b", end(FinishReason::kAborted));
  engine_.send("cmpl-a", end(FinishReason::kLength));
  EXPECT_EQ(status_of(first.read_answer()), 200);
  eventually(
      [&] {
        RawClient third = asker("/v1/completions", R"({"prompt":[1],"request_id":"c"})");
        engine_.wait_for_request("cmpl-c");
        engine_.send("cmpl-c", tokens({kKernel}, std::string(20'000, 'x')));
        engine_.send("cmpl-c", end(FinishReason::kLength));
        return status_of(third.read_answer()) == 200;
      },
      "the others' room");
}

TEST_F(AnswerMemoryTest, ACallThatFindsNoMemoryForATokenFailsAlone) {
  settings_.limits.answer_bytes = 64 * kMiB;
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1],"logprobs":0,"max_tokens":5000,"request_id":"a"})");
  RawClient other = asker("/v1/completions", R"({"prompt":[1],"request_id":"b"})");
  for (const char* id : {"cmpl-a", "cmpl-b"}) engine_.wait_for_request(id);
  {
    const test::LittleMemory little(64 * kKiB);
    for (int i = 0; i < 50; ++i) engine_.send("cmpl-a", told(100));
  }
  const std::string answer = one.read_answer();
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_NE(answer.find("out of memory"), std::string::npos) << answer;
  EXPECT_TRUE(engine_.wait_for_abort("cmpl-a"));
  engine_.send("cmpl-a", end(FinishReason::kAborted));
  answer_call("cmpl-b");
  EXPECT_EQ(status_of(other.read_answer()), 200);
  expect_service();
}

TEST_F(AnswerMemoryTest, ACallThatFindsNoMemoryForItsTextFailsAlone) {
  settings_.limits.answer_bytes = 64 * kMiB;
  serve();
  RawClient one = asker("/v1/completions", R"({"prompt":[1],"logprobs":0,"max_tokens":5000,"request_id":"a"})");
  engine_.wait_for_request("cmpl-a");
  for (int i = 0; i < 30; ++i) engine_.send("cmpl-a", told(100));
  {
    const test::LittleMemory little(100 * kKiB, test::Whose::kAllThreads);
    engine_.send("cmpl-a", end(FinishReason::kLength));
    EXPECT_EQ(status_of(one.read_answer()), 503);
  }
  expect_service();
}

TEST_F(AnswerMemoryTest, AnAnswerIsWrittenWithoutATree) {
  settings_.limits.answer_bytes = 64 * kMiB;
  serve();
  RawClient one = asker("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"logprobs":true,)"
                                                R"("top_logprobs":20,"max_tokens":2000,"request_id":"a"})");
  engine_.wait_for_request("chatcmpl-a");
  const std::vector<TokenLogprob> top(20, {kKernel, -1.5F, 1});
  const std::vector<TokenLogprobs> positions(100, test::told({kKernel, -1.5F, 1}, top));
  for (int i = 0; i < 10; ++i) engine_.send("chatcmpl-a", tokens(std::vector<TokenId>(100, kKernel), "", positions));
  test::take_most_live_bytes();
  const int64_t before = test::num_live_bytes();
  engine_.send("chatcmpl-a", end(FinishReason::kLength));
  const std::string answer = one.read_answer();
  const int64_t most = test::take_most_live_bytes() - before;
  EXPECT_EQ(status_of(answer), 200);
  // Room for the text here and at the client. As a tree each of the 21,000 entries took above 400 bytes more.
  EXPECT_LT(most, 22'000 * 110 + 3 * std::ssize(answer) + kMiB);
  EXPECT_EQ(body_of(answer).at("choices")[0].at("logprobs").at("content").size(), 1000U);
}

}  // namespace
}  // namespace ferry::api::openai
