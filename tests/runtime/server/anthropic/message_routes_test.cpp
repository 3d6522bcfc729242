#include "runtime/server/anthropic/message_routes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "runtime/server/api/api_service.h"
#include "runtime/server/http/http_server.h"
#include "tests/runtime/server/fake_engine_client.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/openai/demo_tokens.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"

// Calls of Messages from a client's bytes to the engine and back.

namespace ferry::api::anthropic {
namespace {

using nlohmann::json;
using test::end;
using test::kKernel;
using test::RawClient;
using test::status_of;
using test::tokens;

/// An engine whose chats take until let_go() once hold() was called.
class HeldEngineClient : public test::FakeEngineClient {
 public:
  std::vector<TokenId> encode_chat(const ChatInput& chat, const std::function<void()>& check_in) const override {
    if (is_held_) {
      ++num_held_;
      is_held_.wait(true);
    }
    return FakeEngineClient::encode_chat(chat, check_in);
  }
  void hold() { is_held_ = true; }
  void let_go() {
    is_held_ = false;
    is_held_.notify_all();
  }
  int num_held() const { return num_held_; }

 private:
  std::atomic<bool> is_held_ = false;
  mutable std::atomic<int> num_held_ = 0;
};

class MessageRoutesTest : public ::testing::Test {
 protected:
  void serve(Access access = {}) {
    access_ = std::move(access);
    ApiSettings settings;
    settings.model_names = {"demo"};
    settings.context_length = 77;
    settings.vocab_size = 1009;
    settings.keep_alive_s = 0;
    service_ = std::make_unique<ApiService>(engine_, settings);
    HttpRouter router;
    add_message_routes(router, service_->context());
    router.add("GET", "/blocking", {.handler = {}, .blocking = [](const HttpRequest&) { return HttpResponse{.status = 200}; }});
    HttpServerOptions options{.address = "127.0.0.1:0", .limits = test::patient_limits()};
    options.limits.http_body_bytes = 4096;
    server_.emplace(options, access_, std::move(router));
  }
  void TearDown() override {
    engine_.let_go();
    if (service_ != nullptr) service_->finish_prompts(std::chrono::steady_clock::now());
    server_.reset();
  }

  RawClient client() { return RawClient(server_->address()); }
  static json body_of(const std::string& answer) { return json::parse(answer.substr(answer.find("\r\n\r\n") + 4)); }
  std::string post(const std::string& path, const std::string& body) { return client().ask("POST " + path, body); }
  /// A client that has asked and not read.
  RawClient asker(const std::string& body, const std::string& headers = "", const std::string& path = "/v1/messages") {
    RawClient one = client();
    one.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
             "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return one;
  }

  HeldEngineClient engine_;
  Access access_;
  std::unique_ptr<ApiService> service_;
  std::optional<HttpServer> server_;  // ends before what it calls
};

constexpr const char* kMessage = R"({"model":"demo","max_tokens":5,"messages":[{"role":"user","content":"hi"}]})";
constexpr const char* kStreamed =
    R"({"model":"demo","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]})";

TEST_F(MessageRoutesTest, AMessageIsAnsweredAsAWhole) {
  serve();
  RawClient one = asker(kMessage, "X-Request-Id: a\r\n");
  const Request request = engine_.wait_for_request("msg_a");
  EXPECT_EQ(request.sampling.max_tokens, 5);
  engine_.send("msg_a", tokens({kKernel}, " kernel"));
  engine_.send("msg_a", end(FinishReason::kLength));
  const std::string answer = one.read_answer();
  EXPECT_EQ(status_of(answer), 200);
  const json body = body_of(answer);
  EXPECT_EQ(body.at("id"), "msg_a");
  EXPECT_EQ(body.at("content")[0].at("text"), " kernel");
  EXPECT_EQ(body.at("stop_reason"), "max_tokens");
}

TEST_F(MessageRoutesTest, AStreamThatFailsSaysSo) {
  serve();
  RawClient one = asker(kStreamed, "X-Request-Id: a\r\n");
  engine_.wait_for_request("msg_a");
  engine_.send("msg_a", tokens({kKernel}, " kernel"));
  EXPECT_NE(one.read_until("text_delta").find("event: message_start\n"), std::string::npos);
  GenerateEvent failure = end(FinishReason::kError);
  failure.error = Error(ErrorCode::kUnavailable, "rank 1 was lost");
  engine_.send("msg_a", failure);
  const std::string rest = one.read_until("rank 1 was lost");
  EXPECT_NE(rest.find("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\""), std::string::npos)
      << rest;
}

TEST_F(MessageRoutesTest, AClientThatGoesEndsItsRequest) {
  serve();
  {
    RawClient one = asker(kStreamed, "X-Request-Id: a\r\n");
    engine_.wait_for_request("msg_a");
  }
  EXPECT_TRUE(engine_.wait_for_abort("msg_a"));
  engine_.send("msg_a", test::end(FinishReason::kAborted));
}

TEST_F(MessageRoutesTest, TokensAreCounted) {
  serve();
  const std::string answer = post("/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_EQ(body_of(answer), json::parse(R"({"input_tokens":3})"));
  const std::string refused = post("/v1/messages/count_tokens", R"({"model":"x","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(status_of(refused), 404);
  EXPECT_EQ(body_of(refused).at("error").at("type"), "not_found_error");
}

TEST_F(MessageRoutesTest, CountsThatTakeLongLeaveOtherRoutesTheirThreads) {
  engine_.hold();
  serve();
  std::vector<RawClient> counts;
  for (int i = 0; i < 6; ++i) counts.push_back(asker(kMessage, "", "/v1/messages/count_tokens"));
  eventually([&] { return engine_.num_held() >= 2; }, "prompts to be made");
  EXPECT_EQ(status_of(client().ask("GET /blocking")), 200);
  engine_.let_go();
  for (RawClient& count : counts) EXPECT_EQ(status_of(count.read_answer()), 200);
}

TEST_F(MessageRoutesTest, AllErrorsHaveOneEnvelope) {
  serve({.keys = ApiKeys({"key-of-a-client"}), .tls = {}});
  const auto type_of = [](const std::string& answer) {
    const json body = body_of(answer);
    EXPECT_EQ(body.at("type"), "error");
    EXPECT_TRUE(body.at("error").at("message").is_string());
    return std::to_string(status_of(answer)) + " " + body.at("error").at("type").get<std::string>();
  };
  EXPECT_EQ(type_of(asker(kMessage).read_answer()), "401 authentication_error");
  for (const char* key : {"x-api-key: key-of-a-client\r\n", "Authorization: Bearer key-of-a-client\r\n"})
    EXPECT_EQ(type_of(asker("{", key).read_answer()), "400 invalid_request_error");
  EXPECT_EQ(type_of(asker(std::string(5000, ' '), "x-api-key: key-of-a-client\r\n").read_answer()), "413 request_too_large");
}

}  // namespace
}  // namespace ferry::api::anthropic
