#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/server/front/front.h"
#include "runtime/server/front/http_proxy.h"
#include "runtime/server/http/http_client.h"
#include "tests/runtime/server/front/fake_coordinator.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/support/expect_error.h"

// A front's HTTP port before coordinators that do what the test says.

namespace ferry {
namespace {

using test::answer_ok;
using test::eventually_after_looks;
using test::FakeCoordinator;
using test::kNeverLost;
using test::kNoLimitSeconds;
using test::kPatientTimes;
using test::patient_limits;
using test::RawClient;

/// What a front has beside its coordinators. Its time stands still unless the test moves it.
struct FrontSetting {
  std::string address = "127.0.0.1:0";
  ServerLimits limits{};
  double drain_timeout_s = kNoLimitSeconds;
  double lost_after_s = kNeverLost;
  FrontTimes times = kPatientTimes;
  Access access{};
};

class HttpProxy : public ::testing::Test {
 protected:
  std::unique_ptr<Front> front_of(const std::vector<std::string>& coordinators, const FrontSetting& setting = {}) {
    FrontOptions options{.http_address = setting.address,
                         .drain_timeout_s = setting.drain_timeout_s,
                         .lost_after_s = setting.lost_after_s,
                         .access = {},
                         .limits = patient_limits(setting.limits)};
    for (const std::string& address : coordinators) options.coordinators.push_back({.http = address, .grpc = ""});
    return std::make_unique<Front>(options, setting.access, setting.times, clock_);
  }

  ManualClock clock_;
};

std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; }

std::string ask(const Front& front, const std::string& request) {
  RawClient client(front.http_address());
  EXPECT_TRUE(client.send(request));
  return client.read_answer();
}

bool has_status(const std::string& answer, int status) {
  return answer.starts_with("HTTP/1.1 " + std::to_string(status) + " ");
}

/// The value of a sample of /metrics, whose name and labels are `sample`.
double metric(const Front& front, const std::string& sample) {
  const std::string text = ask(front, get("/metrics"));
  const std::size_t found = text.find("\n" + sample + " ");
  EXPECT_NE(found, std::string::npos) << sample << " in\n" << text;
  return found == std::string::npos ? -1 : std::stod(text.substr(found + sample.size() + 2));
}

TEST_F(HttpProxy, PassesARequestAndItsAnswer) {
  std::mutex mutex;
  HttpRequest seen;
  FakeCoordinator coordinator([&](HttpRequest request, HttpReply reply) {
    const std::scoped_lock lock(mutex);
    seen = std::move(request);
    reply.send({.status = 418, .body = "{\"tea\":1}", .headers = {{"X-Request-Id", "r1"}, {"Retry-After", "7"}}});
  });
  const auto front = front_of({coordinator.address()});
  const std::string answer = ask(*front, post("/v1/chat/completions", R"({"a":1})",
                                              "Authorization: Bearer secret\r\nX-Request-Id: r1\r\nTE: trailers\r\n"
                                              "Origin: http://localhost\r\nConnection: keep-alive\r\n"));
  EXPECT_TRUE(has_status(answer, 418)) << answer;
  EXPECT_TRUE(answer.ends_with("{\"tea\":1}"));
  EXPECT_NE(answer.find("x-request-id: r1\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("retry-after: 7\r\n"), std::string::npos) << answer;
  const std::scoped_lock lock(mutex);
  EXPECT_EQ(seen.body, R"({"a":1})");
  EXPECT_EQ(seen.header("authorization"), "Bearer secret");
  EXPECT_EQ(seen.header("x-request-id"), "r1");
  EXPECT_EQ(seen.header("host"), coordinator.address());
  EXPECT_EQ(seen.header("content-type"), "application/json");
  EXPECT_EQ(seen.header("origin"), std::nullopt);
  EXPECT_EQ(seen.header("te"), std::nullopt);
  EXPECT_EQ(seen.count("content-length"), 1);
}

TEST_F(HttpProxy, PassesAStreamAsItComes) {
  std::promise<void> has_first;
  FakeCoordinator coordinator([&](const HttpRequest& request, HttpReply reply) {
    if (request.method == "GET") return answer_ok(request, std::move(reply));
    std::thread([&, stream = reply.stream({.headers = {{"X-Kind", "events"}}})] {
      stream->write("data: 1\n\n");
      has_first.get_future().wait_for(kTestLimit);  // the second piece waits for the first one's arrival
      stream->write("data: 2\n\n");
      stream->finish();
    }).detach();
  });
  const auto front = front_of({coordinator.address()});
  RawClient client(front->http_address());
  client.send(post("/v1/completions", "{}"));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_TRUE(has_status(head, 200)) << head;
  EXPECT_NE(head.find("Content-Type: text/event-stream; charset=utf-8\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("x-kind: events\r\n"), std::string::npos) << head;
  EXPECT_EQ(client.read_chunk(), "data: 1\n\n");
  has_first.set_value();
  EXPECT_EQ(client.read_chunk(), "data: 2\n\n");
  EXPECT_EQ(client.read_chunk(), "");  // the end
  client.send(get("/v1/models"));      // the connection stays
  EXPECT_TRUE(client.read_until("\r\n").starts_with("HTTP/1.1 "));
}

TEST_F(HttpProxy, AClientThatLeavesEndsTheCoordinatorsCall) {
  std::promise<HttpEnd> whole_end, stream_end;
  std::vector<HttpReply> open;
  std::vector<std::shared_ptr<HttpStream>> streams;
  std::atomic<int> num_open = 0;
  FakeCoordinator coordinator([&](const HttpRequest& request, HttpReply reply) {
    if (request.path == "/tokenize") {
      reply.set_on_closed([&](HttpEnd end) { whole_end.set_value(end); });
      open.push_back(std::move(reply));
    } else {
      streams.push_back(reply.stream({}, {.on_closed = [&](HttpEnd end) { stream_end.set_value(end); }}));
      streams.back()->write("data: 1\n\n");
    }
    ++num_open;
  });
  const auto front = front_of({coordinator.address()});
  {
    RawClient one(front->http_address()), other(front->http_address());
    one.send(post("/tokenize", "{}"));
    other.send(post("/v1/completions", "{}"));
    other.read_until("\r\n\r\n");
    eventually([&] { return num_open == 2; }, "both calls at the coordinator");
    EXPECT_EQ(metric(*front, "ferry:front_open_requests{coordinator=\"" + coordinator.address() + "\"}"), 2);
  }
  auto whole = whole_end.get_future(), stream = stream_end.get_future();
  ASSERT_EQ(whole.wait_for(kTestLimit), std::future_status::ready);
  ASSERT_EQ(stream.wait_for(kTestLimit), std::future_status::ready);
  EXPECT_EQ(whole.get(), HttpEnd::kGone);
  EXPECT_EQ(stream.get(), HttpEnd::kGone);
  eventually([&] { return metric(*front, "ferry:front_open_requests{coordinator=\"" + coordinator.address() + "\"}") == 0; },
             "no request to be open");
}

TEST_F(HttpProxy, SessionsAndPromptsStayWhereTheyWere) {
  FakeCoordinator a(answer_ok), b(answer_ok);
  const auto front = front_of({a.address(), b.address()});
  for (int i = 0; i < 4; ++i) ask(*front, post("/v1/completions", "{}", "X-Session-Id: s\r\n"));
  EXPECT_EQ(a.num_requests(), 4);
  const std::string prompt(1000, 'p');
  for (int i = 0; i < 3; ++i) ask(*front, post("/v1/completions", R"({"prompt":")" + prompt + std::to_string(i) + "\"}"));
  EXPECT_EQ(a.num_requests(), 4);
  EXPECT_EQ(b.num_requests(), 3);
  for (int i = 0; i < 2; ++i) ask(*front, post("/tokenize", R"({"prompt":")" + std::string(1000, 't') + "\"}"));
  EXPECT_EQ(a.num_requests() + b.num_requests(), 9);
  EXPECT_EQ(b.num_requests(), 4);  // what no model computes is remembered nowhere, and goes where fewer calls were
  EXPECT_EQ(metric(*front, "ferry:front_choices_total{by=\"session\"}"), 3);
  EXPECT_EQ(metric(*front, "ferry:front_choices_total{by=\"prefix\"}"), 2);
  EXPECT_EQ(metric(*front, "ferry:front_choices_total{by=\"load\"}"), 2);
  EXPECT_EQ(metric(*front, "ferry:front_requests_total{coordinator=\"" + b.address() + "\",port=\"http\"}"), 4);
}

TEST_F(HttpProxy, WhoeverRefusesConnectionsIsPassedOverAndTakenBack) {
  FakeCoordinator a(answer_ok), b(answer_ok);
  const auto front = front_of({a.address(), b.address()});
  EXPECT_EQ(ask(*front, get("/health")).substr(9, 3), "200");
  a.stop();
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", "{}")), 200)) << i;
  EXPECT_EQ(b.num_requests(), 6);
  const std::string health = ask(*front, get("/health"));
  EXPECT_TRUE(has_status(health, 200)) << health;
  EXPECT_NE(health.find(R"({"status":"DEGRADED","coordinators":[{"coordinator":")" + a.address() + R"(","state":"down")"),
            std::string::npos)
      << health;
  EXPECT_EQ(metric(*front, "ferry:front_coordinator_up{coordinator=\"" + a.address() + "\"}"), 0);
  a.start_again();
  eventually_after_looks(
      clock_, [&] { return ask(*front, get("/health")).ends_with("{}\n"); }, "both to serve");
  EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", "{}")), 200));
  EXPECT_EQ(a.num_requests(), 1);  // it had fewer so far
}

TEST_F(HttpProxy, ACallThatNobodyTakesIsToldSo) {
  const test::ReservedPort nobody;
  const auto front = front_of({nobody.address()});
  const std::string answer = ask(*front, post("/v1/chat/completions", "{}"));
  EXPECT_TRUE(has_status(answer, 503)) << answer;
  EXPECT_NE(answer.find("no coordinator serves"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Retry-After: "), std::string::npos) << answer;
  EXPECT_NE(ask(*front, post("/v1/messages", "{}")).find(R"({"type":"error","error":{"type":"overloaded_error")"),
            std::string::npos);
  EXPECT_TRUE(has_status(ask(*front, get("/health")), 503));
  EXPECT_TRUE(has_status(ask(*front, get("/ping")), 503));
  EXPECT_GE(metric(*front, "ferry:front_unserved_total"), 2);
}

TEST_F(HttpProxy, A503IsAskedElsewhereAndToldIfNobodyElseIsThere) {
  const auto refuse = [](const HttpRequest&, HttpReply reply) { reply.send(http_error(503, "the queue is full")); };
  FakeCoordinator full(refuse), ready(answer_ok), other(refuse);
  {
    const auto front = front_of({full.address(), ready.address()});
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", R"({"prompt":"abc"})")), 200));
    EXPECT_EQ(ready.num_requests(), 4);
    EXPECT_EQ(metric(*front, "ferry:front_retries_total"), full.num_requests());
    EXPECT_EQ(metric(*front, "ferry:front_coordinator_up{coordinator=\"" + full.address() + "\"}"), 1);
  }
  const auto front = front_of({full.address(), other.address()});
  const std::string answer = ask(*front, post("/v1/completions", "{}"));
  EXPECT_TRUE(has_status(answer, 503)) << answer;
  EXPECT_NE(answer.find("the queue is full"), std::string::npos) << answer;
  EXPECT_EQ(other.num_requests(), 1);
}

TEST_F(HttpProxy, WhoeverDrainsIsNotChosen) {
  FakeCoordinator a(answer_ok), b(answer_ok);
  a.set_health(503);
  const auto front = front_of({a.address(), b.address()});
  for (int i = 0; i < 3; ++i) ask(*front, post("/v1/completions", "{}", "X-Session-Id: s\r\n"));
  EXPECT_EQ(a.num_requests(), 0);
  EXPECT_EQ(b.num_requests(), 3);
  EXPECT_NE(ask(*front, get("/health")).find(R"("state":"refusing","reason":"{)"), std::string::npos);
}

/// Writes `pieces` as one stream and cuts it.
FakeCoordinator::Handler cut_after(const std::string& piece, const std::string& content_type) {
  return [=](const HttpRequest&, HttpReply reply) {
    const auto stream = reply.stream({.content_type = content_type});
    if (piece.empty()) return;
    std::thread([stream, piece] {
      stream->write(piece);
      eventually([&] { return stream->waiting_bytes() == 0; }, "a piece to be sent");
    }).detach();
  };
}

TEST_F(HttpProxy, AStreamOfEventsThatBreaksOffEndsWithAnError) {
  FakeCoordinator coordinator(cut_after("data: {\"half", "text/event-stream")), other(answer_ok);
  const auto front = front_of({coordinator.address(), other.address()});
  RawClient client(front->http_address());
  client.send(post("/v1/completions", "{}"));
  client.read_until("\r\n\r\n");
  EXPECT_EQ(client.read_chunk(), "data: {\"half");
  const std::string last = client.read_chunk();
  EXPECT_TRUE(last.starts_with("\n\ndata: {\"error\":{\"message\":\"coordinator " + coordinator.address() + " was lost"))
      << last;
  EXPECT_TRUE(last.ends_with("data: [DONE]\n\n")) << last;
  EXPECT_EQ(client.read_chunk(), "");
  EXPECT_EQ(other.num_requests(), 0);
  EXPECT_EQ(metric(*front, "ferry:front_broken_answers_total{coordinator=\"" + coordinator.address() + "\"}"), 1);
}

TEST_F(HttpProxy, AStreamOfAnthropicsEndsWithAnErrorOfItsOwnKind) {
  FakeCoordinator coordinator(cut_after("event: ping\n\n", "text/event-stream"));
  const auto front = front_of({coordinator.address()});
  RawClient client(front->http_address());
  client.send(post("/v1/messages", "{}"));
  client.read_until("\r\n\r\n");
  EXPECT_EQ(client.read_chunk(), "event: ping\n\n");
  EXPECT_TRUE(client.read_chunk().starts_with("event: error\ndata: {\"type\":\"error\""));
  EXPECT_EQ(client.read_chunk(), "");
}

TEST_F(HttpProxy, AnotherStreamThatBreaksOffIsCut) {
  FakeCoordinator coordinator(cut_after("half", "text/plain"));
  const auto front = front_of({coordinator.address()});
  RawClient client(front->http_address());
  client.send(post("/v1/completions", "{}"));
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.ends_with("\r\n\r\n4\r\nhalf\r\n")) << answer;  // no last chunk
}

TEST_F(HttpProxy, ACallOfWhichNothingHasComeIsAskedElsewhere) {
  FakeCoordinator silent(cut_after("", "text/event-stream")), other(answer_ok);
  const auto front = front_of({silent.address(), other.address()});
  const std::string answer = ask(*front, post("/v1/completions", "{}"));
  EXPECT_TRUE(answer.ends_with("{\"ok\":true}")) << answer;
  EXPECT_EQ(silent.num_requests(), 1);
  EXPECT_EQ(metric(*front, "ferry:front_retries_total"), 1);
}

TEST_F(HttpProxy, ACoordinatorThatHangsIsGivenUp) {
  std::vector<HttpReply> open;
  FakeCoordinator hung([&](const HttpRequest&, HttpReply reply) { open.push_back(std::move(reply)); });
  const auto front = front_of({hung.address()}, {.lost_after_s = 10, .times = {}});
  auto answer = std::async(std::launch::async, [&] { return ask(*front, post("/v1/completions", "{}")); });
  eventually([&] { return hung.num_requests() == 1; }, "the call at the coordinator");
  hung.set_health(0);
  eventually_after_looks(
      clock_, [&] { return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }, "the call to be given up");
  const std::string text = answer.get();
  EXPECT_TRUE(has_status(text, 503)) << text;
  EXPECT_NE(text.find("was lost: it does not answer any more"), std::string::npos) << text;
}

/// A front's routes without the looks at its coordinators, all of which serve at first.
class ProxyRoutes {
 public:
  explicit ProxyRoutes(const std::vector<std::string>& coordinators) : pool_(addresses_of(coordinators)) {
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_.set_state(i, CoordinatorState::kServing, "");
    HttpRouter router;
    add_proxy_routes(router, context_);
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = limits_}, access_, std::move(router));
  }

  CoordinatorPool& pool() { return pool_; }
  const std::string& address() const { return server_->address(); }

 private:
  static std::vector<CoordinatorAddress> addresses_of(const std::vector<std::string>& coordinators) {
    std::vector<CoordinatorAddress> addresses;
    for (const std::string& each : coordinators) addresses.push_back({.http = each, .grpc = ""});
    return addresses;
  }

  const ServerLimits limits_ = patient_limits();
  const Access access_{};
  const FrontMark mark_;
  CoordinatorPool pool_;
  HttpClient client_;
  TaskPool readers_{1, 10};
  HttpProxyContext context_{.pool = pool_, .client = client_, .readers = readers_, .limits = limits_, .mark = mark_};
  std::optional<HttpServer> server_;
};

TEST_F(HttpProxy, ACallThatIsGivenUpIsAskedElsewhere) {
  std::vector<HttpReply> open;
  FakeCoordinator hung([&](const HttpRequest&, HttpReply reply) { open.push_back(std::move(reply)); }), other(answer_ok);
  ProxyRoutes routes({hung.address(), other.address()});
  RawClient client(routes.address());
  client.send(post("/v1/completions", "{}"));
  eventually([&] { return hung.num_requests() == 1; }, "the call at the first coordinator");
  routes.pool().give_up_calls(0);
  EXPECT_TRUE(client.read_answer().ends_with("{\"ok\":true}"));  // of the other one
  EXPECT_EQ(other.num_requests(), 1);
}

TEST_F(HttpProxy, ASlowClientGetsAllOfALongStream) {
  const std::string piece(100'000, 'x');
  constexpr int kPieces = 320;  // 32 MB: more than all sockets hold, and far less may wait
  std::atomic<bool> was_taken = true;
  std::promise<void> is_held_up;
  FakeCoordinator coordinator([&](const HttpRequest&, HttpReply reply) {
    std::thread([&, stream = reply.stream({.content_type = "text/plain"})] {
      bool was_held_up = false;
      for (int i = 0; i < kPieces; ++i) {
        int num_looks = 0;
        const auto has_room = [&] {
          const bool is_stuck = stream->waiting_bytes() > 500'000;
          if (is_stuck && ++num_looks == 50 && !std::exchange(was_held_up, true)) is_held_up.set_value();
          return !is_stuck;
        };
        eventually(has_room, "room for a piece");
        was_taken = was_taken && stream->write(piece);
      }
      stream->finish();
    }).detach();
  });
  const auto front = front_of({coordinator.address()}, {.limits = {.http_stream_bytes = 64 << 10}});
  RawClient client(front->http_address());
  client.send(post("/v1/completions", "{}"));
  ASSERT_EQ(is_held_up.get_future().wait_for(kTestLimit), std::future_status::ready);
  client.read_until("\r\n\r\n");
  std::size_t num_bytes = 0;
  for (std::string chunk = client.read_chunk(); !chunk.empty(); chunk = client.read_chunk()) num_bytes += chunk.size();
  EXPECT_EQ(num_bytes, piece.size() * kPieces);
  EXPECT_TRUE(was_taken);
}

TEST_F(HttpProxy, BodiesBeyondTheBoundReachNobody) {
  FakeCoordinator coordinator(answer_ok);
  const auto front = front_of({coordinator.address()}, {.limits = {.http_body_bytes = 1000}});
  EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", std::string(1001, ' '))), 413));
  EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", std::string(1000, ' '))), 200));
  EXPECT_EQ(coordinator.num_requests(), 1);
}

TEST_F(HttpProxy, AFrontWithKeysAsksForOneAndPassesItOn) {
  std::promise<std::string> key;
  FakeCoordinator coordinator([&](const HttpRequest& request, HttpReply reply) {
    key.set_value(std::string(request.header("x-api-key").value_or("")));
    answer_ok(request, std::move(reply));
  });
  Access access;
  access.keys = ApiKeys(std::vector<std::string>{"key-of-anna"});
  const auto front = front_of({coordinator.address()}, {.access = access});
  EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", "{}")), 401));
  EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", "{}", "x-api-key: key-of-anna\r\n")), 200));
  EXPECT_EQ(key.get_future().get(), "key-of-anna");
  EXPECT_TRUE(has_status(ask(*front, get("/health")), 200));
}

TEST_F(HttpProxy, WhatIsNotPassedIsSaid) {
  FakeCoordinator coordinator(answer_ok);
  const auto front = front_of({coordinator.address()});
  const std::string captures = ask(*front, "POST /start_profile HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(has_status(captures, 501)) << captures;
  EXPECT_NE(captures.find("a coordinator's own"), std::string::npos);
  EXPECT_TRUE(has_status(ask(*front, get("/status.json")), 404));
  EXPECT_NE(ask(*front, get("/load")).find("{\"server_load\":0}"), std::string::npos);
  EXPECT_NE(ask(*front, get("/version")).find("{\"version\":"), std::string::npos);
  EXPECT_TRUE(has_status(ask(*front, get("/v1/models")), 200));
  EXPECT_EQ(coordinator.num_requests(), 1);
}

TEST_F(HttpProxy, AFrontThatStopsLetsStreamsEnd) {
  std::promise<std::shared_ptr<HttpStream>> streams;
  FakeCoordinator coordinator(
      [&](const HttpRequest&, HttpReply reply) { streams.set_value(reply.stream({.content_type = "text/event-stream"})); });
  const test::ReservedPort port;
  const auto front = front_of({coordinator.address()}, {.address = port.address()});
  RawClient client(front->http_address());
  client.send(post("/v1/completions", "{}"));
  const auto stream = streams.get_future().get();
  stream->write("data: 1\n\n");
  client.read_until("\r\n\r\n");
  EXPECT_EQ(client.read_chunk(), "data: 1\n\n");
  std::thread stopping([&] { front->stop(); });
  std::thread again([&] { front->stop(); });
  const auto is_refused = [&] {
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port.port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0;
  };
  eventually(is_refused, "nobody to listen any more");
  stream->write("data: 2\n\n");
  stream->finish();
  EXPECT_EQ(client.read_chunk(), "data: 2\n\n");
  EXPECT_EQ(client.read_chunk(), "");
  stopping.join();
  again.join();
}

TEST_F(HttpProxy, AFrontThatStopsCutsWhatDoesNotEndInTime) {
  std::promise<std::shared_ptr<HttpStream>> streams;
  FakeCoordinator coordinator([&](const HttpRequest&, HttpReply reply) { streams.set_value(reply.stream({})); });
  const auto front = front_of({coordinator.address()}, {.drain_timeout_s = 0.05});
  RawClient client(front->http_address());
  client.send(post("/v1/completions", "{}"));
  const auto stream = streams.get_future().get();
  front->stop();
  EXPECT_EQ(client.read_all(), "");
}

TEST(Front, RefusesWhatCannotBe) {
  const auto make = [](std::vector<CoordinatorAddress> coordinators) {
    FrontOptions options{.coordinators = std::move(coordinators), .http_address = "127.0.0.1:0"};
    Front front(options, Access{});
  };
  test::expect_error([&] { make({}); }, ErrorCode::kInvalidArgument, {"coordinators: 0", "1 to 64"});
  test::expect_error([&] { make({{"nowhere", ""}}); }, ErrorCode::kInvalidArgument, {"coordinator", "'nowhere'"});
  test::expect_error([&] { make({{"127.0.0.1:0", ""}}); }, ErrorCode::kInvalidArgument, {"127.0.0.1:0", "port 0"});
  test::expect_error([&] { make({{"127.0.0.1:1", "x:y"}}); }, ErrorCode::kInvalidArgument, {"'x:y'"});
}

TEST_F(HttpProxy, AFrontThatIsItsOwnCoordinatorDoesNotServeItself) {
  const test::ReservedPort own;
  FakeCoordinator coordinator(answer_ok);
  const auto front = front_of({own.address(), coordinator.address()}, {.address = own.address()});
  const std::string refusing = "this call has come back to the front";
  eventually_after_looks(
      clock_, [&] { return ask(*front, get("/health")).find(refusing) != std::string::npos; }, "the front to know itself");
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", "{}")), 200));
  EXPECT_EQ(coordinator.num_requests(), 4);
  EXPECT_EQ(metric(*front, "ferry:front_retries_total"), 0);
}

TEST_F(HttpProxy, ACallThatComesBackThroughAnotherFrontIsGivenToACoordinatorOrRefused) {
  const test::ReservedPort first_port, second_port;
  FakeCoordinator coordinator(answer_ok);
  const auto second = front_of({first_port.address()}, {.address = second_port.address()});
  const auto first = front_of({second_port.address(), coordinator.address()}, {.address = first_port.address()});
  const auto serve_each_other = [&] {
    return has_status(ask(*second, get("/health")), 200) && ask(*first, get("/health")).ends_with("{}\n");
  };
  eventually_after_looks(clock_, serve_each_other, "both fronts to serve");
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(has_status(ask(*first, post("/v1/completions", "{}")), 200));
    EXPECT_TRUE(has_status(ask(*second, post("/v1/completions", "{}")), 200));
  }
  coordinator.set_health(503);
  const auto is_refused = [&] {
    const std::string answer = ask(*first, post("/v1/completions", "{}"));
    return has_status(answer, 508) &&
           answer.find("this call has come back to the front that passed it on") != std::string::npos;
  };
  eventually_after_looks(clock_, is_refused, "the call to be refused");
}

TEST_F(HttpProxy, WhoSendsNothingMoreGetsItsAnswer) {
  std::promise<void> may_answer;
  FakeCoordinator coordinator([&](HttpRequest, HttpReply reply) {
    std::thread([&, held = std::make_shared<HttpReply>(std::move(reply))] {
      may_answer.get_future().wait_for(kTestLimit);
      held->send({.status = 200, .body = "{\"ok\":true}"});
    }).detach();
  });
  const auto front = front_of({coordinator.address()});
  RawClient client(front->http_address());
  client.send(post("/v1/completions", "{}"));
  client.end_sending();
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  may_answer.set_value();
  EXPECT_TRUE(client.read_all().ends_with("{\"ok\":true}"));
}

TEST_F(HttpProxy, ViaOfOthersPassesBesideItsOwn) {
  std::mutex mutex;
  HttpRequest seen;
  FakeCoordinator coordinator([&](HttpRequest request, HttpReply reply) {
    const std::scoped_lock lock(mutex);
    seen = std::move(request);
    reply.send({.status = 200, .body = "{}"});
  });
  const auto front = front_of({coordinator.address()});
  EXPECT_TRUE(has_status(ask(*front, post("/v1/completions", "{}", "Via: 1.1 cache, 1.1 ferry-front-0\r\n")), 200));
  const std::scoped_lock lock(mutex);
  EXPECT_EQ(seen.count("via"), 2);
  EXPECT_EQ(seen.header("via"), "1.1 cache, 1.1 ferry-front-0");
}

}  // namespace
}  // namespace ferry
