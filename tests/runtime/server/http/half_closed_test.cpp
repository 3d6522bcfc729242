#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/runtime/server/http/called_server.h"

// Clients that shut down their sending half when they have asked, and how they are told from those that have gone.

namespace ferry {
namespace {

using test::RawClient;
using test::status_of;

class HalfClosedTest : public test::CalledServerTest {
 protected:
  HalfClosedTest() {
    HttpRouter router;
    router.add("GET", "/call", {.handler = box_.handler(), .blocking = {}});
    options_.probe_s = 0.005;
    server_.emplace(options_, access_, std::move(router));
  }
};

constexpr const char* kInterim = "HTTP/1.1 100 Continue\r\n\r\n";

/// The answer behind any number of interim ones.
std::string final_answer(RawClient& client) {
  std::string answer = client.read_answer();
  while (answer == kInterim) answer = client.read_answer();
  return answer;
}

TEST_F(HalfClosedTest, WhoSendsNothingMoreGetsAWholeAnswer) {
  RawClient half = caller();
  half.end_sending();
  const auto reply = box_.take();
  reply->set_on_closed(end_.callback());
  EXPECT_EQ(half.read_answer(), kInterim) << "which tells those that have gone from those that have not";
  EXPECT_EQ(half.read_answer(), kInterim) << "again and again";
  EXPECT_FALSE(end_.has_come());
  reply->send({.status = 200, .body = "all", .content_type = "text/plain"});
  EXPECT_EQ(end_.wait(), HttpEnd::kAnswered);
  const std::string answer = final_answer(half);
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nall")) << answer;
  EXPECT_EQ(half.read_all(), "") << "and no request can follow";
}

TEST_F(HalfClosedTest, WhoSendsNothingMoreGetsAWholeStream) {
  for (const bool is_begun : {false, true}) {
    RawClient half = caller();
    test::End end;
    const auto stream = box_.take()->stream({}, {.on_closed = end.callback()});
    if (is_begun) {
      stream->write("a");
      EXPECT_EQ(status_of(half.read_answer()), 200);
      EXPECT_EQ(half.read_chunk(), "a");
    }
    half.end_sending();
    if (!is_begun) {
      EXPECT_EQ(half.read_answer(), kInterim);
      stream->write("a");
      EXPECT_EQ(status_of(final_answer(half)), 200);
      EXPECT_EQ(half.read_chunk(), "a");
    }
    stream->write("b");
    EXPECT_EQ(half.read_chunk(), "b");
    stream->finish();
    EXPECT_EQ(half.read_chunk(), "");
    EXPECT_EQ(end.wait(), HttpEnd::kAnswered);
  }
}

TEST_F(HalfClosedTest, ACommentTellsWhetherOneIsThereWhoSendsNothingMore) {
  RawClient half = caller();
  const auto stream = box_.take()->stream({.keep_alive_s = 3600}, {.on_closed = end_.callback()});
  stream->write("a");
  EXPECT_EQ(status_of(half.read_answer()), 200);
  EXPECT_EQ(half.read_chunk(), "a");
  half.end_sending();
  EXPECT_EQ(half.read_chunk(), ": keep-alive\n\n");
  EXPECT_EQ(half.read_chunk(), ": keep-alive\n\n");
  EXPECT_FALSE(end_.has_come());
  half.leave();
  EXPECT_EQ(end_.wait(), HttpEnd::kGone) << "whoever closes later is missed, too";
}

TEST_F(HalfClosedTest, CommentsStandBetweenEvents) {
  RawClient half = caller();
  const auto stream = this->stream();
  for (const char* piece : {"data: 1\n\nda", "ta", ": 2\n"}) stream->write(piece);
  half.end_sending();
  EXPECT_EQ(status_of(final_answer(half)), 200);
  std::string body;
  while (!body.ends_with(": 2\n")) body += half.read_chunk();
  EXPECT_EQ(body, "data: 1\n\ndata: 2\n");
  RawClient witness = caller();  // by whom the silence is seen to be long enough for a comment
  test::End other_end;
  const auto other = box_.take()->stream({}, {.on_closed = other_end.callback()});
  other->write("data: 1\n\n");
  witness.end_sending();
  EXPECT_EQ(status_of(final_answer(witness)), 200);
  EXPECT_EQ(witness.read_chunk(), "data: 1\n\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(witness.read_chunk(), ": keep-alive\n\n");
  stream->write("\n");
  EXPECT_EQ(half.read_chunk(), "\n");
  EXPECT_EQ(half.read_chunk(), ": keep-alive\n\n");
  half.leave();
  EXPECT_EQ(end_.wait(), HttpEnd::kGone);
}

TEST_F(HalfClosedTest, WhoSendsNothingMoreWhileNoEventsComeCountsAsGone) {
  RawClient half = caller();
  const auto stream = this->stream({.content_type = "text/plain"});
  stream->write("a");
  EXPECT_EQ(status_of(half.read_answer()), 200);
  half.end_sending();
  EXPECT_EQ(end_.wait(), HttpEnd::kGone) << "there is nothing that would change nothing";
}

TEST_F(HalfClosedTest, WhoSendsNothingMoreAndGoesThenIsMissed) {
  RawClient half = caller();
  half.end_sending();
  const auto reply = box_.take();
  reply->set_on_closed(end_.callback());
  EXPECT_EQ(half.read_answer(), kInterim);
  half.leave();
  EXPECT_EQ(end_.wait(), HttpEnd::kGone);
}

TEST_F(HalfClosedTest, RequestsThatCameBeforeTheEndAreAnsweredAllTheSame) {
  RawClient half = client();
  const std::string request = "GET /call HTTP/1.1\r\nHost: localhost\r\n\r\n";
  half.send(request + request);
  half.end_sending();
  for (const char* body : {"one", "two"}) {
    const auto reply = box_.take();
    test::End end;
    reply->set_on_closed(end.callback());
    EXPECT_EQ(half.read_answer(), kInterim);
    reply->send({.status = 200, .body = body, .content_type = "text/plain"});
    EXPECT_TRUE(final_answer(half).ends_with(body));
    EXPECT_EQ(end.wait(), HttpEnd::kAnswered);
  }
}

TEST_F(HalfClosedTest, AnOldClientThatSendsNothingMoreCountsAsGone) {
  RawClient half = client();
  half.send("GET /call HTTP/1.0\r\nHost: localhost\r\n\r\n");
  half.end_sending();
  const auto reply = box_.take();
  reply->set_on_closed(end_.callback());
  EXPECT_EQ(end_.wait(), HttpEnd::kGone) << "HTTP/1.0 has no interim answers";
  EXPECT_EQ(half.read_all(), "");
}

}  // namespace
}  // namespace ferry
