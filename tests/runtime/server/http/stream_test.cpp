#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "runtime/server/descriptor_limit.h"
#include "runtime/server/health_route.h"
#include "runtime/server/http/http_server.h"
#include "tests/runtime/server/http/called_server.h"

namespace ferry {
namespace {

using test::RawClient;
using test::status_of;

class HttpStreamTest : public test::CalledServerTest {
 protected:
  /// Serves GET and POST /call, which box_ gets, POST /echo and /health.
  void serve() {
    HttpRouter router;
    add_health_route(router, [] { return Health{}; });
    router.add("GET", "/call", {.handler = box_.handler(), .blocking = {}});
    router.add("POST", "/call", {.handler = box_.handler(), .blocking = {}});
    const auto echo = [](const HttpRequest& request) { return HttpResponse{.status = 200, .body = request.body}; };
    router.add("POST", "/echo", {.handler = {}, .blocking = echo});
    server_.emplace(options_, access_, std::move(router));
  }
};

TEST_F(HttpStreamTest, PiecesBecomeChunks) {
  serve();
  RawClient one = caller();
  const auto stream = this->stream({.status = 202, .headers = {{"X-Request-Id", "abc"}}});
  EXPECT_TRUE(stream->write("data: 1\n\n"));
  const std::string head = one.read_answer();
  EXPECT_EQ(status_of(head), 202);
  for (const char* line :
       {"Content-Type: text/event-stream; charset=utf-8\r\n", "Transfer-Encoding: chunked\r\n", "X-Request-Id: abc\r\n"})
    EXPECT_NE(head.find(line), std::string::npos) << head;
  EXPECT_EQ(head.find("Content-Length"), std::string::npos) << head;
  EXPECT_EQ(one.read_chunk(), "data: 1\n\n");
  EXPECT_TRUE(stream->write(std::string(100'000, 'x')));
  EXPECT_TRUE(stream->write("2"));
  EXPECT_EQ(one.read_chunk(), std::string(100'000, 'x'));
  EXPECT_EQ(one.read_chunk(), "2");
  EXPECT_FALSE(end_.has_come());
  stream->finish();
  stream->finish();
  EXPECT_EQ(one.read_until("\r\n\r\n"), "0\r\n\r\n");
  EXPECT_EQ(end_.wait(), HttpEnd::kAnswered);
  EXPECT_FALSE(stream->write("too late"));
  EXPECT_EQ(stream->waiting_bytes(), 0);
  EXPECT_EQ(status_of(one.ask("GET /health")), 200) << "the connection stays";
}

TEST_F(HttpStreamTest, FinishedWithoutAPiece) {
  serve();
  RawClient one = caller();
  stream()->finish();
  const std::string head = one.read_answer();
  EXPECT_EQ(status_of(head), 200);
  EXPECT_EQ(one.read_until("\r\n\r\n"), "0\r\n\r\n");
  EXPECT_EQ(end_.wait(), HttpEnd::kAnswered);
}

TEST_F(HttpStreamTest, AnEmptyPieceSendsTheHead) {
  serve();
  RawClient one = caller();
  const auto stream = this->stream();
  EXPECT_TRUE(stream->write(""));
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_TRUE(stream->write("a"));
  EXPECT_EQ(one.read_chunk(), "a");
  stream->finish();
}

TEST_F(HttpStreamTest, AnErrorBeforeTheFirstPieceHasItsStatus) {
  serve();
  RawClient one = caller();
  const auto early = box_.take()->stream({});
  EXPECT_TRUE(early->answer_instead(http_error(503, "full")));
  EXPECT_FALSE(early->write("a"));
  const std::string answer = one.read_answer();
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_TRUE(answer.ends_with(R"({"error":{"message":"full","type":"Service Unavailable","param":null,"code":503}})"
                               "\n"))
      << answer;
  one.send("GET /call HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto late = stream();
  EXPECT_TRUE(late->write("a"));
  EXPECT_FALSE(late->answer_instead(http_error(503, "full")));
  late->finish();
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(one.read_chunk(), "a");
}

TEST_F(HttpStreamTest, WithoutChunksTheConnectionsEndIsTheBodys) {
  serve();
  RawClient old = client();
  old.send("GET /call HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
  const auto stream = this->stream({.content_type = "text/plain"});
  stream->write("a");
  stream->write("bc");
  stream->finish();
  const std::string answer = old.read_all();
  EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nabc")) << answer;
}

TEST_F(HttpStreamTest, HeadHasNoBody) {
  serve();
  RawClient one = client();
  one.send("HEAD /call HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto stream = this->stream();
  EXPECT_TRUE(stream->write("a"));
  stream->finish();
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_TRUE(one.ask("GET /health").starts_with("HTTP/1.1 200")) << "nothing came between the two heads";
}

TEST_F(HttpStreamTest, ManyThreadsWriteOneStream) {
  constexpr int kThreads = 8, kPieces = 500;
  options_.limits.http_stream_bytes = 64 << 20;
  serve();
  RawClient one = caller();
  const auto stream = this->stream();
  std::vector<std::thread> writers;
  for (int i = 0; i < kThreads; ++i) {
    writers.emplace_back([&stream, i] {
      for (int k = 0; k < kPieces; ++k) EXPECT_TRUE(stream->write(std::to_string(i) + ":" + std::to_string(k)));
    });
  }
  EXPECT_EQ(status_of(one.read_answer()), 200);
  std::vector<int> next(kThreads, 0);  // the piece that each thread sends next
  for (int count = 0; count < kThreads * kPieces; ++count) {
    const std::string piece = one.read_chunk();
    ASSERT_NE(piece, "");
    const auto writer = static_cast<std::size_t>(std::stoi(piece));
    EXPECT_EQ(piece, std::to_string(writer) + ":" + std::to_string(next[writer]++));
  }
  for (std::thread& writer : writers) writer.join();
  stream->finish();
  EXPECT_EQ(one.read_chunk(), "");
  EXPECT_EQ(end_.wait(), HttpEnd::kAnswered);
}

TEST_F(HttpStreamTest, AReaderThatIsTooSlowLosesItsStream) {
  options_.limits.http_stream_bytes = 64 << 10;
  serve();
  RawClient one = caller();
  const auto stream = this->stream();
  const std::string piece(4096, 'x');
  int64_t most = 0;
  int count = 0;
  for (; stream->write(piece); ++count) most = std::max(most, stream->waiting_bytes());
  EXPECT_GT(count, (64 << 10) / 4096);
  EXPECT_LE(most, (64 << 10) + 2 * (4096 + 16));
  EXPECT_EQ(end_.wait(), HttpEnd::kTooSlow);
  const std::string all = one.read_all();
  EXPECT_FALSE(all.ends_with("0\r\n\r\n")) << "it looks complete";
}

TEST_F(HttpStreamTest, OneLargePieceIsNoReasonToEnd) {
  options_.limits.http_stream_bytes = 16 << 10;
  serve();
  RawClient one = caller();
  const auto stream = this->stream();
  const std::string large(8 << 20, 'x');  // more than the sockets hold
  EXPECT_TRUE(stream->write("small"));
  EXPECT_TRUE(stream->write(large));
  EXPECT_TRUE(stream->write("small again"));
  EXPECT_GT(stream->waiting_bytes(), 1 << 20);
  stream->finish();
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(one.read_chunk(), "small");
  EXPECT_EQ(one.read_chunk(), large);
  EXPECT_EQ(one.read_chunk(), "small again");
  EXPECT_EQ(one.read_chunk(), "");
}

TEST_F(HttpStreamTest, APieceThatIsNotTakenInTimeEndsTheStream) {
  options_.limits.http_write_s = 0.05;
  serve();
  RawClient one = caller();
  const auto stream = this->stream();
  EXPECT_TRUE(stream->write(std::string(32 << 20, 'x')));
  EXPECT_EQ(end_.wait(), HttpEnd::kTooSlow);
  EXPECT_FALSE(stream->write("a"));
}

TEST_F(HttpStreamTest, AReaderThatGoesIsNoticedWithoutAWrite) {
  serve();
  for (const auto how : {RawClient::Going::kClose, RawClient::Going::kReset}) {
    RawClient one = caller();
    test::End end;
    const auto stream = box_.take()->stream({}, {end.callback()});
    EXPECT_TRUE(stream->write("a"));
    EXPECT_EQ(status_of(one.read_answer()), 200);
    one.leave(how);
    EXPECT_EQ(end.wait(), HttpEnd::kGone);
    EXPECT_FALSE(stream->write("b"));
    stream->finish();
  }
}

TEST_F(HttpStreamTest, WhoWaitsForAWholeAnswerIsMissed) {
  serve();
  for (const auto how : {RawClient::Going::kClose, RawClient::Going::kReset}) {
    RawClient one = caller();
    const auto reply = box_.take();
    test::End end;
    reply->set_on_closed(end.callback());
    one.leave(how);
    EXPECT_EQ(end.wait(), HttpEnd::kGone);
    test::End late;
    reply->set_on_closed(late.callback());
    EXPECT_TRUE(late.has_come());
    reply->send({});
  }
}

TEST_F(HttpStreamTest, NobodyWatchesWhereNobodyAsks) {
  serve();
  RawClient half = caller();
  half.end_sending();
  box_.take()->send({.status = 200, .body = "all", .content_type = "text/plain"});
  const std::string answer = half.read_answer();
  EXPECT_TRUE(answer.ends_with("all")) << answer;
  EXPECT_NE(answer.find("Content-Type: text/plain\r\n"), std::string::npos) << answer;
}

TEST_F(HttpStreamTest, AnAnswerEndsItsCall) {
  serve();
  RawClient one = caller();
  const auto reply = box_.take();
  reply->set_on_closed(end_.callback());
  reply->send({.status = 200, .body = "", .content_type = ""});
  EXPECT_EQ(end_.wait(), HttpEnd::kAnswered);
  const std::string answer = one.read_answer();
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_EQ(answer.find("Content-Type"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Content-Length: 0\r\n"), std::string::npos) << answer;
  EXPECT_EQ(status_of(one.ask("GET /health")), 200);
}

TEST_F(HttpStreamTest, WhatIsSentAheadWaitsForTheStreamsEnd) {
  constexpr int kRequests = 500;  // more than the connection takes ahead
  serve();
  RawClient one = caller();
  const auto stream = this->stream();
  std::string ahead;
  for (int i = 0; i < kRequests; ++i)
    ahead += "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n" +
             std::to_string(100 + i);
  std::thread sender([&] { EXPECT_TRUE(one.send(ahead)); });
  EXPECT_TRUE(stream->write("a"));
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(one.read_chunk(), "a");
  EXPECT_TRUE(stream->write("b"));
  stream->finish();
  EXPECT_EQ(one.read_chunk(), "b");
  EXPECT_EQ(one.read_chunk(), "");
  for (int i = 0; i < kRequests; ++i) EXPECT_TRUE(one.read_answer().ends_with(std::to_string(100 + i))) << i;
  sender.join();
}

TEST_F(HttpStreamTest, SilenceIsFilledWithComments) {
  serve();
  RawClient one = caller();
  const auto stream = this->stream({.keep_alive_s = 0.05});
  EXPECT_EQ(status_of(one.read_answer()), 200) << "before any piece";
  EXPECT_EQ(one.read_chunk(), ": keep-alive\n\n");
  EXPECT_EQ(one.read_chunk(), ": keep-alive\n\n");
  EXPECT_FALSE(stream->answer_instead(http_error(503, "full")));
  EXPECT_TRUE(stream->write("a"));
  std::string chunk = one.read_chunk();
  while (chunk == ": keep-alive\n\n") chunk = one.read_chunk();
  EXPECT_EQ(chunk, "a");
  EXPECT_EQ(one.read_chunk(), ": keep-alive\n\n");
  stream->finish();
  EXPECT_EQ(end_.wait(), HttpEnd::kAnswered);
  while (one.read_chunk() != "") continue;
  one.send("GET /call HTTP/1.1\r\nHost: localhost\r\n\r\n");
  test::End end;
  const auto next = box_.take()->stream({.keep_alive_s = 0.05}, {end.callback()});
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(one.read_chunk(), ": keep-alive\n\n") << "also of the connection's next stream";
  next->finish();
  EXPECT_EQ(end.wait(), HttpEnd::kAnswered);
}

TEST_F(HttpStreamTest, ADroppedStreamLooksCutOff) {
  serve();
  RawClient one = caller();
  auto stream = this->stream();
  EXPECT_TRUE(stream->write("a"));
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(one.read_chunk(), "a");
  stream.reset();
  EXPECT_EQ(end_.wait(), HttpEnd::kGone);
  EXPECT_EQ(one.read_all(), "");
}

TEST_F(HttpStreamTest, OpenStreamsKeepTheirPlaces) {
  options_.limits.http_connections = 2;
  serve();
  std::vector<RawClient> clients;
  std::vector<std::shared_ptr<HttpStream>> streams;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(caller());
    streams.push_back(box_.take()->stream({}));
    EXPECT_TRUE(streams.back()->write("a"));
    EXPECT_EQ(status_of(clients.back().read_answer()), 200);
    EXPECT_EQ(clients.back().read_chunk(), "a");
  }
  EXPECT_EQ(client().read_all(), "");  // no room
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(streams[i]->write("b"));
    EXPECT_EQ(clients[i].read_chunk(), "b");
    streams[i]->finish();
    EXPECT_EQ(clients[i].read_chunk(), "");
  }
  EXPECT_EQ(status_of(client().ask("GET /health")), 200);
}

TEST_F(HttpStreamTest, AStreamsRequestTakesNoRoomFromBodies) {
  options_.limits.http_total_body_bytes = 100'000;
  serve();
  const std::string body(60'000, ' ');
  RawClient one = client();
  one.send("POST /call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n" + body);
  const auto stream = this->stream();
  EXPECT_EQ(status_of(client().ask("POST /echo", body)), 503) << "its body may be still there";
  EXPECT_TRUE(stream->write("a"));
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(status_of(client().ask("POST /echo", body)), 200);
  stream->finish();
}

int num_threads() { return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {})); }

TEST_F(HttpStreamTest, AThousandStreamsAtOnce) {
  constexpr int kStreams = 1000, kPieces = 20;
  raise_descriptor_limit();
  ASSERT_GE(affordable_connections(kStreams), kStreams) << "the system gives this process too few descriptors";
  serve();
  std::vector<RawClient> clients;
  std::vector<std::shared_ptr<HttpStream>> streams;
  std::atomic<int> num_answered = 0;
  const int threads_before = num_threads();
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(caller());
    streams.push_back(
        box_.take()->stream({.keep_alive_s = 600}, {[&](HttpEnd end) { num_answered += end == HttpEnd::kAnswered; }}));
  }
  EXPECT_EQ(status_of(client().ask("GET /health")), 200);
  EXPECT_EQ(num_threads(), threads_before);
  for (int k = 0; k < kPieces; ++k) {
    for (int i = 0; i < kStreams; ++i) EXPECT_TRUE(streams[static_cast<std::size_t>(i)]->write(std::to_string(i + k)));
  }
  for (const auto& stream : streams) stream->finish();
  for (int i = 0; i < kStreams; ++i) {
    RawClient& one = clients[static_cast<std::size_t>(i)];
    EXPECT_EQ(status_of(one.read_answer()), 200);
    for (int k = 0; k < kPieces; ++k) EXPECT_EQ(one.read_chunk(), std::to_string(i + k));
    EXPECT_EQ(one.read_chunk(), "");
  }
  server_.reset();
  EXPECT_EQ(num_answered, kStreams);
}

TEST_F(HttpStreamTest, AServerThatStopsFinishesItsStreams) {
  serve();
  RawClient one = caller(), other = caller();
  const auto stream = this->stream();
  const auto reply = box_.take();
  EXPECT_TRUE(stream->write("a"));
  EXPECT_EQ(status_of(one.read_answer()), 200);
  EXPECT_EQ(one.read_chunk(), "a");
  RawClient idle = client();
  EXPECT_EQ(status_of(idle.ask("GET /health")), 200);
  std::thread stopper([&] { server_.reset(); });
  EXPECT_EQ(idle.read_all(), "");  // returns when the server stops
  EXPECT_TRUE(stream->write("b"));
  EXPECT_EQ(one.read_chunk(), "b");
  reply->send({.status = 200, .body = "whole"});
  EXPECT_TRUE(other.read_answer().ends_with("whole"));
  stream->finish();
  EXPECT_EQ(one.read_chunk(), "");
  EXPECT_EQ(one.read_all(), "");
  stopper.join();
  EXPECT_EQ(end_.wait(), HttpEnd::kAnswered);
}

TEST_F(HttpStreamTest, AServerThatStopsDoesNotWaitForEver) {
  options_.stop_s = 0.1;
  serve();
  RawClient one = caller(), other = caller();
  const auto stream = this->stream();
  const auto reply = box_.take();
  EXPECT_TRUE(stream->write("a"));
  EXPECT_EQ(status_of(one.read_answer()), 200);
  server_.reset();
  EXPECT_EQ(end_.wait(), HttpEnd::kGone);
  EXPECT_FALSE(stream->write("b"));
  stream->finish();
  EXPECT_EQ(one.read_chunk(), "a");
  EXPECT_EQ(one.read_all(), "");
  EXPECT_EQ(other.read_all(), "");
}  // the reply is dropped after the server

TEST_F(HttpStreamTest, AnswersAreObserved) {
  struct Seen {
    std::string route, method;
    int status;
    bool has_reached_handler;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen;
  options_.observe = [&](const HttpAnswered& answered) {
    EXPECT_GE(answered.seconds, 0);
    EXPECT_LT(answered.seconds, 600) << "since when?";
    seen.push_back({std::string(answered.route), std::string(answered.method), answered.status, answered.note != nullptr});
  };
  serve();
  RawClient one = client();
  one.ask("GET /health?x");
  one.ask("POST /echo", "{}");
  one.ask("FOO /nothing");
  one.ask("PUT /echo");
  one.send("HEAD /call HTTP/1.1\r\nHost: localhost\r\n\r\n");
  stream({.status = 201})->finish();
  EXPECT_EQ(status_of(one.read_answer()), 201);
  RawClient gone = caller();
  test::End end;
  const auto reply = box_.take();
  reply->set_on_closed(end.callback());
  gone.leave();
  end.wait();
  RawClient no_request = client();
  no_request.send("hello\r\n\r\n");
  EXPECT_EQ(status_of(no_request.read_all()), 400);
  server_.reset();
  EXPECT_EQ(seen, (std::vector<Seen>{{"/health", "GET", 200, true},
                                     {"/echo", "POST", 200, true},
                                     {"none", "<unknown>", 404, false},
                                     {"none", "PUT", 405, false},
                                     {"/call", "HEAD", 201, true},
                                     {"/call", "GET", 0, true},
                                     {"none", "<unknown>", 400, false}}));
}

}  // namespace
}  // namespace ferry
