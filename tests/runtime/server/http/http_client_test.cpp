#include "runtime/server/http/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "tests/runtime/server/scripted_server.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/reserved_port.h"

namespace ferry {
namespace {

using test::ScriptedConnection;
using test::ScriptedServer;

/// What an exchange was told, in order.
class Ear final : public ExchangeHearer {
 public:
  void on_head(HttpAnswerHead head) override { head_ = std::move(head); }
  void on_piece(std::string_view piece) override { body_ += piece; }
  bool is_full() override { return num_full_looks_-- > 0; }
  void on_end(ExchangeEnd end, const std::string& reason) override {
    reason_ = reason;
    ended_.set_value(end);
  }

  ExchangeEnd wait() {
    auto ended = ended_.get_future();
    EXPECT_EQ(ended.wait_for(kTestLimit), std::future_status::ready);
    return ended.get();
  }

  HttpAnswerHead head_;
  std::string body_, reason_;
  int num_full_looks_ = 0;

 private:
  std::promise<ExchangeEnd> ended_;
};

std::string address_of(const ScriptedServer& server) { return "127.0.0.1:" + std::to_string(server.port()); }

/// The end of a question to a server that answers with `text`, and what was heard.
std::pair<ExchangeEnd, std::shared_ptr<Ear>> hear(const std::string& text, int num_full_looks = 0) {
  ScriptedServer server([&](ScriptedConnection& connection, const std::string&) { connection.send(text); });
  HttpClient client;
  const auto ear = std::make_shared<Ear>();
  ear->num_full_looks_ = num_full_looks;
  client.start({.address = address_of(server)}, ear);
  const ExchangeEnd end = ear->wait();
  return {end, ear};
}

TEST(HttpClient, AsksAndHears) {
  std::promise<std::string> seen;
  ScriptedServer server([&](ScriptedConnection& connection, const std::string& head) {
    seen.set_value(head);
    connection.send("HTTP/1.1 201 Created\r\nX-One: 1\r\nContent-Length: 4\r\n\r\nbody");
  });
  HttpClient client;
  const auto ear = std::make_shared<Ear>();
  client.start({.address = address_of(server),
                .method = "POST",
                .path = "/path?q=1",
                .headers = {{"x-two", "2"}},
                .body = std::make_shared<const std::string>("abc")},
               ear);
  EXPECT_EQ(ear->wait(), ExchangeEnd::kWhole);
  EXPECT_EQ(seen.get_future().get(), "POST /path?q=1 HTTP/1.1\r\nHost: " + address_of(server) +
                                         "\r\nConnection: close\r\nx-two: 2\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(ear->head_.status, 201);
  EXPECT_EQ(ear->head_.headers.front(), (std::pair<std::string, std::string>{"x-one", "1"}));
  EXPECT_EQ(ear->head_.length, 4);
  EXPECT_EQ(ear->body_, "body");
}

TEST(HttpClient, HearsBodiesOfAnyForm) {
  const auto [chunked, first] =
      hear("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 3);
  EXPECT_EQ(chunked, ExchangeEnd::kWhole);
  EXPECT_EQ(first->body_, "abcde");
  EXPECT_EQ(first->head_.length, std::nullopt);
  const std::string large(100'000, 'x');
  const auto [closed, second] = hear("HTTP/1.0 200 OK\r\n\r\n" + large);
  EXPECT_EQ(closed, ExchangeEnd::kWhole);
  EXPECT_EQ(second->body_, large);
  const auto [none, third] = hear("HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_EQ(none, ExchangeEnd::kWhole);
  EXPECT_EQ(third->body_, "");
}

TEST(HttpClient, TellsWhereAnAnswerBreaksOff) {
  EXPECT_EQ(hear("").first, ExchangeEnd::kUnreachable);
  EXPECT_EQ(hear("HTTP/1.1 200 OK\r\nX-").first, ExchangeEnd::kUnreachable);
  EXPECT_EQ(hear("no HTTP at all\r\n\r\n").first, ExchangeEnd::kUnreachable);
  EXPECT_EQ(hear("HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x')).first, ExchangeEnd::kUnreachable);
  const auto [short_end, ear] = hear("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody");
  EXPECT_EQ(short_end, ExchangeEnd::kBroken);
  EXPECT_EQ(ear->body_, "body");
  EXPECT_NE(ear->reason_, "");
  EXPECT_EQ(hear("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").first, ExchangeEnd::kBroken);
}

TEST(HttpClient, PassesOverInterimAnswers) {
  const std::string interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
  const std::string answer = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nbody";
  const auto [end, ear] = hear(interim + "HTTP/1.1 199 Later\r\n\r\n" + answer);
  EXPECT_EQ(end, ExchangeEnd::kWhole);
  EXPECT_EQ(ear->head_.status, 201);
  EXPECT_EQ(ear->head_.headers.size(), 1U) << "of the answer alone";
  EXPECT_EQ(ear->body_, "body");
  EXPECT_EQ(hear(interim + interim + interim + interim + answer).first, ExchangeEnd::kWhole);
  const auto [endless, too_many] = hear(interim + interim + interim + interim + interim + answer);
  EXPECT_EQ(endless, ExchangeEnd::kUnreachable);
  EXPECT_EQ(too_many->reason_, "it sent more than 8 interim answers");
  EXPECT_EQ(hear(interim).first, ExchangeEnd::kUnreachable) << "no answer follows";
}

TEST(HttpClient, TakesNoOtherProtocol) {
  const auto [end, ear] = hear("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n");
  EXPECT_EQ(end, ExchangeEnd::kUnreachable);
  EXPECT_EQ(ear->head_.status, 0);
  EXPECT_EQ(ear->reason_, "it answers 101, for which it was not asked");
}

TEST(HttpClient, TellsWhoIsNotThere) {
  const test::ReservedPort nobody;
  HttpClient client;
  for (const std::string& address : {nobody.address(), std::string("no-such-host.invalid:80")}) {
    const auto ear = std::make_shared<Ear>();
    client.start({.address = address}, ear);
    EXPECT_EQ(ear->wait(), ExchangeEnd::kUnreachable) << address;
    EXPECT_NE(ear->reason_, "");
  }
  test::expect_error([&] { client.start({.address = "nowhere"}, std::make_shared<Ear>()); }, ErrorCode::kInvalidArgument,
                     {"nowhere"});
}

TEST(HttpClient, EndsWhatIsCancelledOrLeft) {
  ScriptedServer server([](ScriptedConnection& connection, const std::string&) { connection.wait(); });
  const auto left = std::make_shared<Ear>();
  {
    HttpClient client;
    const auto cancelled = std::make_shared<Ear>();
    const auto exchange = client.start({.address = address_of(server)}, cancelled);
    exchange->cancel();
    EXPECT_EQ(cancelled->wait(), ExchangeEnd::kCancelled);
    exchange->cancel();  // again does nothing
    client.start({.address = address_of(server)}, left);
  }
  EXPECT_EQ(left->wait(), ExchangeEnd::kCancelled);
}

TEST(HttpClient, ACancelledExchangeClosesItsConnection) {
  std::atomic<bool> was_asked{false}, was_closed{false};
  ScriptedServer server([&](ScriptedConnection& connection, const std::string&) {
    was_asked = true;
    connection.wait();
    was_closed = true;
  });
  HttpClient client;
  const auto exchange = client.start({.address = address_of(server)}, std::make_shared<Ear>());
  eventually([&] { return was_asked.load(); }, "the question");
  exchange->cancel();
  eventually([&] { return was_closed.load(); }, "the end of the connection, while the client lives");
}

TEST(HttpClient, AnAnswerBeforeTheWholeQuestionIsHeard) {
  ScriptedServer server([](ScriptedConnection& connection, const std::string&) {
    connection.send("HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\n\r\n");
    connection.wait();
  });
  HttpClient client;
  const auto ear = std::make_shared<Ear>();
  client.start({.address = address_of(server), .method = "POST", .body = std::make_shared<const std::string>(1000, 'x')}, ear);
  EXPECT_EQ(ear->wait(), ExchangeEnd::kWhole);
  EXPECT_EQ(ear->head_.status, 413);
}

}  // namespace
}  // namespace ferry
