#include "runtime/server/loading_routes.h"

#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "runtime/server/http/http_server.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::RawClient;
using test::status_of;

std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

void reword(HttpResponse& refusal) { refusal.body = "reworded " + refusal.body; }

/// A server whose model is being loaded, with a key.
class LoadingRoutesTest : public ::testing::Test {
 protected:
  LoadingRoutesTest() {
    access_.keys = ApiKeys({kKey});
    HttpRouter router;
    add_loading_routes(router, [this] { return state(); }, {{"/v1/messages", reword}});
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = test::patient_limits()}, access_, std::move(router));
  }

  RawClient client() { return RawClient(server_->address()); }
  static constexpr const char* kKey = "key-of-anna-1";
  std::string with_key(const std::string& request) {
    RawClient one = client();
    one.send(request + " HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + kKey +
             "\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
    return one.read_all();
  }

  LoadingState state() {
    const std::scoped_lock lock(mutex_);
    return state_;
  }
  void set_state(const LoadingState& state) {
    const std::scoped_lock lock(mutex_);
    state_ = state;
  }

  std::mutex mutex_;
  LoadingState state_{.done_bytes = 30, .total_bytes = 100, .elapsed_s = 15};  // guarded by the mutex
  Access access_;
  std::optional<HttpServer> server_;
};

TEST_F(LoadingRoutesTest, HealthTellsThePercentageToAnybody) {
  for (const char* path : {"/health", "/ping"}) {
    const std::string answer = client().ask(std::string("GET ") + path);
    EXPECT_EQ(status_of(answer), 503) << answer;
    EXPECT_EQ(json::parse(body_of(answer)),
              (json{{"status", "loading"}, {"percent", 30}, {"loaded_bytes", 30}, {"total_bytes", 100}}));
    EXPECT_NE(answer.find("Retry-After: 35\r\n"), std::string::npos) << answer;
  }
}

TEST_F(LoadingRoutesTest, OtherRoutesAnswerInTheApisErrorForm) {
  for (const char* request : {"POST /v1/chat/completions", "POST /start_profile", "DELETE /v1/anything/at/all", "PUT /x"}) {
    const std::string answer = with_key(request);
    EXPECT_EQ(status_of(answer), 503) << answer;
    const json error = json::parse(body_of(answer)).at("error");
    EXPECT_EQ(error.at("message"), "the model is being loaded (30 %); try again in 35 s");
    EXPECT_EQ(error.at("code"), 503);
    EXPECT_NE(answer.find("Retry-After: 35\r\n"), std::string::npos) << answer;
  }
  for (const char* request : {"POST /v1/messages", "POST /v1/messages/count_tokens"})
    EXPECT_EQ(body_of(with_key(request)).find("reworded {\"error\""), 0U) << request;
}

TEST(LoadingRoutes, NameWhatMonitorsAskFor) {
  HttpRouter router;
  add_loading_routes(router, [] { return LoadingState{}; }, {});
  for (const char* path : {"/health", "/ping", "/metrics", "/version", "/load", "/status.json", "/"})
    EXPECT_EQ(router.find("GET", path)->path, path);
}

TEST_F(LoadingRoutesTest, OneWhoseOwnWeightsAreThereWaitsForOthers) {
  set_state({.done_bytes = 100, .total_bytes = 100, .elapsed_s = 15});
  EXPECT_NE(with_key("GET /v1/models").find("the model is being loaded (other ranks still read)"), std::string::npos);
}

TEST_F(LoadingRoutesTest, KeysAreAskedForAsLater) {
  EXPECT_EQ(status_of(client().ask("GET /v1/models")), 401);
  EXPECT_EQ(status_of(client().ask("GET /metrics")), 503);
}

TEST_F(LoadingRoutesTest, WaitHasBoundsAndIsGuessedWhileNothingIsKnown) {
  const auto wait_for = [&](const LoadingState& state) {
    set_state(state);
    const std::string answer = client().ask("GET /health");
    const std::size_t at = answer.find("Retry-After: ") + 13;
    return answer.substr(at, answer.find('\r', at) - at);
  };
  EXPECT_EQ(wait_for({}), "5");
  EXPECT_EQ(wait_for({.done_bytes = 1, .total_bytes = 1000, .elapsed_s = 100}), "60");
  EXPECT_EQ(wait_for({.done_bytes = 999, .total_bytes = 1000, .elapsed_s = 1}), "1");
  EXPECT_EQ(wait_for({.done_bytes = 1000, .total_bytes = 1000, .elapsed_s = 1}), "1");
}

TEST_F(LoadingRoutesTest, AnotherRouterTakesOver) {
  HttpRouter router;
  const auto answer = [](const HttpRequest&, HttpReply reply) { reply.send({.status = 200, .body = "there"}); };
  router.add("GET", "/health", {.handler = answer, .blocking = {}, .guard = HttpGuard::kOpen});
  RawClient kept = client();
  kept.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(status_of(kept.read_answer()), 503);
  server_->set_router(std::move(router));
  eventually([&] { return status_of(client().ask("GET /health")) == 200; }, "the new router");
  kept.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(body_of(kept.read_all()), "there") << "a connection that was there before";
  EXPECT_EQ(status_of(with_key("POST /v1/chat/completions")), 404);
}

}  // namespace
}  // namespace ferry
