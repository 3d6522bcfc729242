#include "runtime/server/http/http_server.h"

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "runtime/server/health_route.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using test::RawClient;
using test::status_of;

/// Many blocking calls wait here until they are let go.
class Barrier {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
  }
  void wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kTestLimit, [&] { return num_waiting_ >= count; }));
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_waiting_ = 0;
  bool is_open_ = false;
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    options_.address = "127.0.0.1:0";
    options_.limits = test::patient_limits();
    options_.stop_s = test::kNoLimitSeconds;
  }

  /// Serves /health, POST /echo (the body comes back), POST /who (which key came), POST /wait (until barrier_ opens), POST
  /// /busy (until nobody wants the answer), POST /fail, POST /drop, and POST /throw (which throws on the I/O thread).
  void serve(const Access& access = {}) {
    access_ = access;
    HttpRouter router;
    add_health_route(router, [this] { return health(); });
    const auto add = [&](const char* path, BlockingHttpHandler handler) {
      router.add("POST", path, {.handler = {}, .blocking = std::move(handler)});
    };
    add("/echo", [](const HttpRequest& request) { return HttpResponse{.status = 200, .body = request.body}; });
    add("/wait", [this](const HttpRequest&) {
      barrier_.wait();
      return HttpResponse{.status = 200, .body = "waited"};
    });
    const auto busy = [this](const HttpRequest& request) -> HttpResponse {
      ++num_busy_;
      try {
        while (true) request.check_in();
      } catch (const Error&) {
        --num_busy_;
        throw;
      }
    };
    router.add("POST", "/busy", {.handler = {}, .blocking = busy, .watches_client = true});
    add("/who", [](const HttpRequest& request) {
      return HttpResponse{.status = 200, .body = request.caller ? std::to_string(*request.caller) : "nobody"};
    });
    add("/fail", [](const HttpRequest&) -> HttpResponse { throw Error(ErrorCode::kUnavailable, "nobody is there"); });
    router.add("POST", "/throw",
               {.handler = [](const HttpRequest&, const HttpReply&) { throw std::bad_alloc(); }, .blocking = {}});
    router.add("POST", "/drop", {.handler = [](const HttpRequest&, const HttpReply&) {}, .blocking = {}});
    server_.emplace(options_, access_, std::move(router));
  }

  RawClient client() { return RawClient(server_->address()); }
  Health health() const {
    if (!is_serving_) return {.complaint = "it fell silent"};
    if (!is_degraded_) return {};
    return {.missing = {{.rank = 2, .state = "masked", .reason = "rank 2 left"}}};
  }
  void expect_alive() { EXPECT_EQ(status_of(client().ask("GET /health")), 200); }

  HttpServerOptions options_;
  Access access_;
  Barrier barrier_;
  std::atomic<int> num_busy_ = 0;
  std::atomic<bool> is_serving_ = true;
  std::atomic<bool> is_degraded_ = false;
  std::optional<HttpServer> server_;
};

std::string headers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "X-" + std::to_string(i) + ": v\r\n";
  return text;
}

TEST_F(HttpServerTest, AnswersOverOneConnection) {
  serve();
  RawClient one = client();
  const std::string health = one.ask("GET /health");
  EXPECT_EQ(status_of(health), 200) << health;
  EXPECT_TRUE(health.ends_with("\r\n\r\n{}\n")) << health;
  EXPECT_NE(health.find("application/json"), std::string::npos);
  EXPECT_TRUE(one.ask("POST /echo?query", "{\"a\": 1}").ends_with("\r\n\r\n{\"a\": 1}"));
  EXPECT_EQ(status_of(one.ask("GET /nothing")), 404);
  const std::string wrong_method = one.ask("GET /echo");
  EXPECT_EQ(status_of(wrong_method), 405);
  EXPECT_NE(wrong_method.find("Allow: POST"), std::string::npos) << wrong_method;
  const std::string failed = one.ask("POST /fail");
  EXPECT_EQ(status_of(failed), 503);
  EXPECT_TRUE(failed.ends_with(R"({"error":{"message":"nobody is there","type":"Service Unavailable","param":null,"code":503}})"
                               "\n"))
      << failed;
  EXPECT_EQ(status_of(one.ask("POST /drop")), 500);
  one.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string head = one.read_all();
  EXPECT_EQ(status_of(head), 200);
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(HttpServerTest, HealthFollowsTheProbe) {
  serve();
  is_serving_ = false;
  const std::string answer = client().ask("GET /health");
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_NE(answer.find("it fell silent"), std::string::npos);
  is_serving_ = true;
  expect_alive();
  is_degraded_ = true;
  const std::string degraded = client().ask("GET /health");
  EXPECT_EQ(status_of(degraded), 200);
  EXPECT_TRUE(
      degraded.ends_with("\r\n\r\n"
                         R"({"status":"DEGRADED","workers":[{"rank":2,"state":"masked","reason":"rank 2 left"}]})"
                         "\n"))
      << degraded;
}

TEST_F(HttpServerTest, RequestsSentAheadAreAnsweredInOrder) {
  serve();
  RawClient one = client();
  std::string all;
  for (int i = 100; i < 300; ++i) {
    all += "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n" +
           std::to_string(i);
  }
  std::thread sender([&] { EXPECT_TRUE(one.send(all)); });
  for (int i = 100; i < 300; ++i) EXPECT_TRUE(one.read_answer().ends_with(std::to_string(i))) << i;
  sender.join();
}

TEST_F(HttpServerTest, ContinuesWhenTheClientWaitsForIt) {
  serve();
  RawClient one = client();
  one.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_EQ(status_of(one.read_answer()), 100);
  one.send("{}");
  EXPECT_TRUE(one.read_answer().ends_with("\r\n\r\n{}"));
}

TEST_F(HttpServerTest, ChunkedBodiesArePutTogether) {
  serve();
  RawClient one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  one.send("3\r\n[1,\r\n3;note=x\r\n 2]\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_TRUE(one.read_answer().ends_with("\r\n\r\n[1, 2]"));
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefused) {
  serve();
  for (const char* text :
       {"\0\0\0\0\r\n\r\n", "hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /health HTTP/1.1\r\nHost\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
        "chunked\r\n\r\nzz\r\n"}) {
    RawClient one = client();
    one.send(*text == '\0' ? std::string_view(text, 8) : std::string_view(text));
    EXPECT_EQ(status_of(one.read_all()), 400) << text;
  }
  expect_alive();
}

TEST_F(HttpServerTest, AHundredThousandHeadersAreRefused) {
  serve();
  RawClient one = client();
  one.send("GET /health HTTP/1.1\r\nHost: localhost\r\n" + headers(100'000) + "\r\n");
  EXPECT_EQ(status_of(one.read_answer()), 431);
  RawClient few_bytes = client();
  EXPECT_EQ(status_of(few_bytes.ask("GET /health", "", headers(99))), 200);
  EXPECT_EQ(status_of(few_bytes.ask("GET /health", "", headers(100))), 431);
  RawClient long_one = client();
  EXPECT_EQ(status_of(long_one.ask("GET /health", "", "X-Long: " + std::string(20'000, 'x') + "\r\n")), 431);
  RawClient long_target = client();
  EXPECT_EQ(status_of(long_target.ask("GET /" + std::string(20'000, 'x'))), 431);
  expect_alive();
}

TEST_F(HttpServerTest, ABodyThatIsAnnouncedTooLongIsRefusedBeforeItComes) {
  serve();
  RawClient one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3221225472\r\n\r\n");
  EXPECT_EQ(status_of(one.read_answer()), 413);
  expect_alive();
}

TEST_F(HttpServerTest, ChunksWithoutEndAreRefused) {
  options_.limits.http_body_bytes = 64 << 10;
  serve();
  RawClient one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "1000\r\n" + std::string(0x1000, ' ') + "\r\n";
  std::thread sender([&] {
    for (int i = 0; i < 10'000 && one.send(chunk); ++i) continue;
  });
  EXPECT_EQ(status_of(one.read_answer()), 413);
  sender.join();
  RawClient extension = client();
  extension.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1;");
  for (int i = 0; i < 10'000 && extension.send(std::string(4096, 'x')); ++i) continue;
  EXPECT_GE(status_of(extension.read_answer()) / 100, 0);  // refused or cut off, but not kept
  expect_alive();
}

constexpr const char* kHalfOfAHead = "GET /health HTTP/1.1\r\nHo";
constexpr const char* kHalfOfABody =
    "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";

TEST_F(HttpServerTest, SlowClientsHoldNobodyUp) {
  serve();
  std::vector<RawClient> slow;
  for (int i = 0; i < 60; ++i) {
    slow.push_back(client());
    slow.back().send(i % 2 == 0 ? kHalfOfAHead : kHalfOfABody);
  }
  for (int i = 0; i < 5; ++i) expect_alive();
}

TEST_F(HttpServerTest, SlowClientsEndAtTheirDeadlines) {
  for (const bool is_head_slow : {true, false}) {
    (is_head_slow ? options_.limits.http_header_s : options_.limits.http_body_s) = 0.05;
    serve();
    RawClient slow = client();
    slow.send(is_head_slow ? kHalfOfAHead : kHalfOfABody);
    EXPECT_EQ(slow.read_all(), "");  // returns when the server has closed
    options_.limits = test::patient_limits();
  }
}

TEST_F(HttpServerTest, SilentClientsEndAtTheirDeadlines) {
  for (const bool has_asked : {false, true}) {
    (has_asked ? options_.limits.http_idle_s : options_.limits.http_header_s) = 0.05;
    serve();
    RawClient silent = client();
    if (has_asked) {
      EXPECT_EQ(status_of(silent.ask("GET /health")), 200);
    }
    EXPECT_EQ(silent.read_all(), "");  // returns when the server has closed
    options_.limits = test::patient_limits();
  }
}

TEST_F(HttpServerTest, OneByteNowAndThenIsNotEnough) {
  options_.limits.http_header_s = 0.2;
  options_.limits.http_header_bytes = 1 << 30;  // their number is none of its reasons to close
  serve();
  RawClient one = client();
  eventually([&] { return !one.send("x"); }, "the server to close on a client that never ends its head");
}

TEST_F(HttpServerTest, AThousandIdleClientsLeaveRoom) {
  options_.limits.http_connections = 200;
  serve();
  RawClient first = client();
  EXPECT_EQ(status_of(first.ask("GET /health")), 200);
  std::vector<RawClient> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(client());
  expect_alive();
  EXPECT_EQ(first.read_all(), "");  // the oldest went
  EXPECT_EQ(status_of(idle.back().ask("GET /health")), 200);
}

TEST_F(HttpServerTest, ThoseThatAreBeingAnsweredStayWhenItIsFull) {
  options_.limits.http_connections = 3;
  serve();
  std::vector<RawClient> busy;
  for (int i = 0; i < 3; ++i) {
    busy.push_back(client());
    busy.back().send("POST /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  barrier_.wait_for_calls(3);
  EXPECT_EQ(client().read_all(), "");  // no room
  barrier_.open();
  for (RawClient& one : busy) EXPECT_TRUE(one.read_answer().ends_with("waited"));
  expect_alive();
}

TEST_F(HttpServerTest, BodiesTogetherAreBounded) {
  options_.limits.http_total_body_bytes = 100'000;
  serve();
  RawClient slow = client();
  slow.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n\r\n" +
            std::string(80'000, ' '));
  for (int i = 0; i < 20; ++i) expect_alive();  // meanwhile the server takes what the slow one sent
  const std::string body(60'000, ' ');
  EXPECT_TRUE(client().ask("POST /echo", body).ends_with(body));
  EXPECT_EQ(slow.read_all(), "");  // went for the other
  EXPECT_EQ(status_of(client().ask("POST /echo", std::string(200'000, ' '))), 503);
  EXPECT_TRUE(client().ask("POST /echo", body).ends_with(body));
}

TEST_F(HttpServerTest, WhatThrowsOnTheIoThreadEndsItsConnectionAlone) {
  options_.limits.http_connections = 2;
  options_.limits.http_total_body_bytes = 100'000;
  serve();
  RawClient other = client();
  EXPECT_EQ(status_of(other.ask("GET /health")), 200);
  const std::string body(60'000, ' ');
  for (int i = 0; i < 3; ++i) {  // each gives its place and its bytes back
    RawClient one = client();
    EXPECT_EQ(one.ask("POST /throw", body), "");
  }
  EXPECT_EQ(status_of(other.ask("GET /health")), 200) << "it was closed, too";
  EXPECT_TRUE(client().ask("POST /echo", body).ends_with(body));
}

TEST_F(HttpServerTest, BlockedHandlersHoldUpNeitherHealthNorTheEnd) {
  serve();
  std::vector<RawClient> blocked;
  for (int i = 0; i < 80; ++i) {
    blocked.push_back(client());
    blocked.back().send("POST /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  barrier_.wait_for_calls(4);
  for (int i = 0; i < 3; ++i) expect_alive();
  RawClient idle = client();
  EXPECT_EQ(status_of(idle.ask("GET /health")), 200);
  std::thread stopper([&] { server_.reset(); });
  EXPECT_EQ(idle.read_all(), "") << "returns when the server stops";
  barrier_.open();  // open calls are answered first
  int num_waited = 0, num_refused = 0;
  for (RawClient& one : blocked) {
    const std::string answer = one.read_answer();
    num_waited += answer.ends_with("waited");
    num_refused += status_of(answer) == 503;
  }
  EXPECT_EQ(num_waited, 64);
  EXPECT_EQ(num_refused, 16);
  stopper.join();
}

TEST_F(HttpServerTest, AHandlerThatBlocksHearsThatItsClientHasGone) {
  serve();
  RawClient one = client();
  one.send("POST /busy HTTP/1.1\r\nHost: localhost\r\n\r\n");
  eventually([&] { return num_busy_ == 1; }, "the handler");
  one.leave();
  eventually([&] { return num_busy_ == 0; }, "the handler's end");
}

TEST_F(HttpServerTest, AHandlerThatBlocksHearsThatTheServerStops) {
  options_.stop_s = 0.01;
  serve();
  RawClient one = client();
  one.send("POST /busy HTTP/1.1\r\nHost: localhost\r\n\r\n");
  eventually([&] { return num_busy_ == 1; }, "the handler");
  server_.reset();
  EXPECT_EQ(num_busy_, 0);
}

TEST_F(HttpServerTest, EndsThoughAClientTakesNoAnswer) {
  serve();
  RawClient greedy = client();
  const std::string body(16 << 20, ' ');  // more than the sockets hold
  std::thread sender([&] {
    greedy.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
  });
  sender.join();
  server_.reset();
  EXPECT_LT(greedy.read_all().size(), body.size());
}

TEST_F(HttpServerTest, KeysAreAskedForButNotByHealth) {
  serve({.keys = ApiKeys({"first-key-1", "second-key-2"}), .tls = {}, .allowed_hosts = {}});
  RawClient one = client();
  const std::string refused = one.ask("POST /echo");
  EXPECT_EQ(status_of(refused), 401);
  EXPECT_NE(refused.find("WWW-Authenticate: Bearer"), std::string::npos);
  EXPECT_EQ(status_of(one.ask("GET /health")), 200);
  EXPECT_EQ(status_of(one.ask("POST /echo", "", "Authorization: Bearer second-key-2\r\n")), 200);
  EXPECT_EQ(status_of(one.ask("POST /echo", "", "x-api-key: first-key-1\r\n")), 200);
  EXPECT_EQ(status_of(one.ask("POST /echo", "", "x-api-key: first-key-2\r\n")), 401);
  EXPECT_TRUE(one.ask("POST /who", "", "x-api-key: second-key-2\r\n").ends_with("\r\n\r\n1"));
  server_.reset();
  serve();
  EXPECT_TRUE(client().ask("POST /who").ends_with("\r\n\r\nnobody"));
}

TEST_F(HttpServerTest, AddressesThatCannotBeUsed) {
  serve();
  const auto open = [&](const std::string& address) {
    options_.address = address;
    const HttpServer another(options_, access_, {});
  };
  test::expect_error([&] { open(server_->address()); }, ErrorCode::kFailedPrecondition, {"cannot serve http on", "in use"});
  test::expect_error([&] { open("192.0.2.1:0"); }, ErrorCode::kFailedPrecondition, {"192.0.2.1:0"});
  const std::string no_name = std::string(70, 'x') + ":0";  // too long for a name: nobody need be asked
  test::expect_error([&] { open(no_name); }, ErrorCode::kFailedPrecondition, {"http", no_name, "the host is not found"});
  test::expect_error([&] { open("localhost"); }, ErrorCode::kInvalidArgument, {"http address 'localhost'"});
}

}  // namespace
}  // namespace ferry
