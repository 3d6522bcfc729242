#include "comm/stream/stream_hub.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/comm/group_cluster.h"
#include "tests/comm/link_pair.h"
#include "tests/support/asleep.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using suite::Bytes;
using suite::pattern;

void send(Link& link, const Bytes& data, int tag = 1) { link.wait(*link.isend(data, tag), test::in_good_time()); }

Bytes receive(Link& link, std::size_t room, int tag = 1, Fit fit = Fit::kUpTo, Deadline deadline = test::in_good_time()) {
  Bytes got(room);
  got.resize(link.wait(*link.irecv(got, tag, fit), deadline));
  return got;
}

/// A message as it travels: magic "FLK1", tag and size, then its bytes.
Bytes framed(const Bytes& data, uint32_t tag) {
  Bytes message(16 + data.size());
  const uint64_t size = data.size();
  std::memcpy(message.data(), "FLK1", 4);
  std::memcpy(message.data() + 4, &tag, sizeof(tag));
  std::memcpy(message.data() + 8, &size, sizeof(size));
  std::ranges::copy(data, message.begin() + 16);
  return message;
}

class StreamHubTest : public ::testing::Test {
 protected:
  StreamHub hub_, other_hub_;
  LinkPair pair_{hub_, Rank{7}, other_hub_, Rank{0}};
};

TEST_F(StreamHubTest, MessagesOfAllSizesArriveWhole) {
  for (const std::size_t bytes : {0UL, 1UL, 16UL, 16367UL, 16368UL, 16384UL, 65535UL, 65536UL, 3000017UL}) {
    const Bytes sent = pattern(bytes, static_cast<int>(bytes));
    std::thread sender([&] { send(*pair_.far, sent); });
    suite::expect_same(receive(*pair_.near, 3000017), sent, std::to_string(bytes) + " bytes");
    sender.join();
  }
}

TEST_F(StreamHubTest, OrderIsKeptWithinATagAndTagsAreApart) {
  for (int i = 0; i < 5; ++i) send(*pair_.far, pattern(33, i), 3);
  send(*pair_.far, pattern(7, 50), Link::kNumTags - 1);
  suite::expect_same(receive(*pair_.near, 7, Link::kNumTags - 1), pattern(7, 50), "the message with the other tag");
  std::vector<Bytes> got(5, Bytes(33));
  std::vector<std::unique_ptr<PendingOp>> receives;
  for (Bytes& memory : got) receives.push_back(pair_.near->irecv(memory, 3, Fit::kExact));
  for (int i = 4; i >= 0; --i) pair_.near->wait(*receives[static_cast<std::size_t>(i)], test::in_good_time());
  for (int i = 0; i < 5; ++i) suite::expect_same(got[static_cast<std::size_t>(i)], pattern(33, i), std::to_string(i));
}

TEST_F(StreamHubTest, WhatNobodyAskedForStaysWithTheSenderAtLast) {
  const Bytes sent = pattern(600 << 10, 1);
  std::vector<std::unique_ptr<PendingOp>> sends;
  for (int i = 0; i < 8; ++i) sends.push_back(pair_.far->isend(sent, 3));
  const Bytes last = pattern(5, 9);
  sends.push_back(pair_.far->isend(last, 4));
  suite::expect_error(ErrorCode::kDeadlineExceeded, "",
                      [&] { pair_.near->wait(*pair_.near->irecv({}, 5, Fit::kUpTo), test::at_once()); });
  test::await_quiet();  // nothing moves by itself any more
  suite::expect_error(ErrorCode::kDeadlineExceeded, "", [&] { pair_.far->wait(*sends.back(), test::at_once()); });
  for (int i = 0; i < 8; ++i) suite::expect_same(receive(*pair_.near, sent.size(), 3), sent, std::to_string(i));
  suite::expect_same(receive(*pair_.near, 5, 4), last, "the last one");
  for (const auto& op : sends) pair_.far->wait(*op, test::in_good_time());
}

TEST_F(StreamHubTest, EmptyMessagesHaveABound) {
  auto [raw, end] = connected_sockets();
  const auto link = hub_.adopt(std::move(end), Rank{3});
  const Bytes empty = framed({}, 3);
  Bytes many;
  for (int i = 0; i < 1000; ++i) many.insert(many.end(), empty.begin(), empty.end());
  int64_t num_sent = 0;
  for (int i = 0; i < 300 && num_sent < int64_t{100} * 1000 * 16; ++i) {
    const ssize_t sent = ::send(raw.get(), many.data(), many.size(), MSG_DONTWAIT);
    if (sent > 0) num_sent += sent;
    suite::expect_error(ErrorCode::kDeadlineExceeded, "", [&] { receive(*link, 1, 4, Fit::kUpTo, test::at_once()); });
  }
  EXPECT_LT(num_sent, int64_t{100} * 1000 * 16) << "all were taken in";
  raw = FileDescriptor(-1);
  suite::expect_error(ErrorCode::kUnavailable, "rank 3: its connection ended behind messages that nobody has asked for",
                      [&] { receive(*link, 1, 4); });
}

TEST_F(StreamHubTest, ADeadlineEndsNothing) {
  Bytes got(4);
  const auto op = pair_.near->irecv(got, 1, Fit::kExact);
  suite::expect_error(ErrorCode::kDeadlineExceeded, "rank 7", [&] { pair_.near->wait(*op, suite::in_milliseconds(10)); });
  EXPECT_FALSE(pair_.near->failure());
  send(*pair_.far, pattern(4, 1));
  EXPECT_EQ(pair_.near->wait(*op, test::in_good_time()), 4U);
  suite::expect_same(got, pattern(4, 1), "after the deadline");
}

TEST_F(StreamHubTest, MessagesThatDoNotFitEndTheirLink) {
  send(*pair_.far, pattern(5, 1));
  suite::expect_error(ErrorCode::kInternal, "rank 7: sent 5 bytes for the recv of at most 4 bytes",
                      [&] { receive(*pair_.near, 4); });
  EXPECT_EQ(pair_.near->failure()->code(), ErrorCode::kInternal);
}

TEST_F(StreamHubTest, GarbageEndsTheLink) {
  auto [raw, end] = connected_sockets();
  const auto link = hub_.adopt(std::move(end), Rank{3});
  const std::string garbage(64, 'x');
  ASSERT_EQ(write(raw.get(), garbage.data(), garbage.size()), 64);
  suite::expect_error(ErrorCode::kInternal, "rank 3: sent what is no message", [&] { receive(*link, 100); });
}

TEST_F(StreamHubTest, UnfinishedReceivesMayGo) {
  Bytes got(100);
  pair_.near->irecv(got, 1, Fit::kUpTo).reset();
  send(*pair_.far, pattern(100, 1));
  suite::expect_same(receive(*pair_.near, 100), pattern(100, 1), "the next receive has it");
}

TEST_F(StreamHubTest, AReceiveTakesItsHalfMessageAlong) {
  auto [raw, end] = connected_sockets();
  const auto link = hub_.adopt(std::move(end), Rank{3});
  Bytes got(100);
  auto op = link->irecv(got, 1, Fit::kExact);
  const Bytes half = framed(pattern(100, 1), 1);
  ASSERT_EQ(write(raw.get(), half.data(), 60), 60);
  suite::expect_error(ErrorCode::kDeadlineExceeded, "", [&] { link->wait(*op, test::at_once()); });
  op.reset();
  got.clear();
  got.shrink_to_fit();
  ASSERT_EQ(write(raw.get(), half.data() + 60, half.size() - 60), std::ssize(half) - 60);
  const Bytes whole = framed(pattern(10, 3), 1);
  ASSERT_EQ(write(raw.get(), whole.data(), whole.size()), std::ssize(whole));
  suite::expect_same(receive(*link, 10), pattern(10, 3), "what follows");
}

TEST_F(StreamHubTest, UnfinishedSendsMayGo) {
  {
    const Bytes large = pattern(4 << 20, 2);
    const auto begun = pair_.far->isend(large, 1);
    const Bytes small = pattern(10, 1);
    const auto not_begun = pair_.far->isend(small, 1);
  }
  const Bytes last = pattern(20, 5);
  const auto op = pair_.far->isend(last, 1);
  suite::expect_same(receive(*pair_.near, 4 << 20), pattern(4 << 20, 2), "what had begun to leave");
  suite::expect_same(receive(*pair_.near, 20), last, "what follows");
}

TEST_F(StreamHubTest, AGoodbyeIsNoDeathAndWhatCameBeforeCounts) {
  send(*pair_.far, pattern(9, 1));
  pair_.far.reset();
  suite::expect_same(receive(*pair_.near, 9), pattern(9, 1), "sent before the goodbye");
  suite::expect_error(ErrorCode::kUnavailable, "rank 7: left", [&] { receive(*pair_.near, 9); });
}

TEST_F(StreamHubTest, FailEndsAWaitOfAnotherThread) {
  std::thread judge([&, waiter = gettid()] {
    test::await_asleep(waiter);
    pair_.near->fail("it is silent for too long");
  });
  suite::expect_error(ErrorCode::kUnavailable, "rank 7: it is silent for too long", [&] { receive(*pair_.near, 9); });
  judge.join();
}

TEST_F(StreamHubTest, LargeMessagesMoveWhileNobodyWaits) {
  const Bytes sent = pattern(8 << 20, 1);
  Bytes got(sent.size());
  const auto receive_op = pair_.near->irecv(got, 1, Fit::kExact);
  const auto send_op = pair_.far->isend(sent, 1);
  // Nobody waits, so only the hubs' threads can have moved it: what a wait with a deadline that is over finds is done.
  const auto is_done = [&] {
    try {
      pair_.near->wait(*receive_op, test::at_once());
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDeadlineExceeded) throw;
      return false;
    }
  };
  eventually(is_done, "a message of 8 MiB that nobody waits for");
  suite::expect_same(got, sent, "the message");
  pair_.far->wait(*send_op, test::in_good_time());
}

TEST(StreamHubStar, OneEndLeavesTheOthersAlone) {
  std::mutex mutex;
  std::vector<std::pair<int, LinkEnd>> ends;
  const auto ends_so_far = [&] {
    const std::scoped_lock lock(mutex);
    return ends;
  };
  StreamHub center([&](Rank peer, LinkEnd end, const std::string&) {
    const std::scoped_lock lock(mutex);
    ends.emplace_back(peer.value, end);
  });
  StreamHub leaves;
  std::vector<LinkPair> links;
  for (int i = 0; i < 3; ++i) links.emplace_back(center, Rank{i}, leaves, Rank{9});
  links[1].far->fail("planted");  // without a goodbye, as in a death
  eventually([&] { return !ends_so_far().empty(); }, "the end of the link with rank 1");
  for (const int i : {0, 2}) {
    LinkPair& link = links[static_cast<std::size_t>(i)];
    send(*link.far, pattern(10, i));
    suite::expect_same(receive(*link.near, 10), pattern(10, i), "link " + std::to_string(i));
    EXPECT_FALSE(link.near->failure());
  }
  EXPECT_TRUE(links[1].near->failure());
  EXPECT_EQ(ends_so_far(), (std::vector{std::pair(1, LinkEnd::kBroken)}));
}

TEST(StreamHubStar, ALinkThatComesWhileTheWatchSleepsIsWatched) {
  std::atomic<int> ended{-1};
  StreamHub hub([&](Rank peer, LinkEnd, const std::string&) { ended = peer.value; });
  test::await_quiet();
  auto [peer, end] = connected_sockets();
  const auto link = hub.adopt(std::move(end), Rank{3});
  test::await_quiet();
  peer = FileDescriptor(-1);
  eventually([&] { return ended == 3; }, "the end of a link for which nobody waits", [&] { return std::to_string(ended); });
}

TEST(StreamHubStar, WaitAnyNamesWhoIsFirst) {
  StreamHub center, leaves;
  std::vector<LinkPair> links;
  for (int i = 0; i < 4; ++i) links.emplace_back(center, Rank{i}, leaves, Rank{9});
  std::vector<Bytes> got(4, Bytes(100));
  std::vector<std::unique_ptr<PendingOp>> ops;
  std::vector<PendingOp*> waited;
  for (int i = 0; i < 4; ++i) {
    ops.push_back(links[static_cast<std::size_t>(i)].near->irecv(got[static_cast<std::size_t>(i)], 1, Fit::kUpTo));
    waited.push_back(ops.back().get());
  }
  suite::expect_error(ErrorCode::kDeadlineExceeded, "", [&] { center.wait_any(waited, suite::in_milliseconds(10)); });
  std::thread late([&, waiter = gettid()] {
    test::await_asleep(waiter);
    send(*links[2].far, pattern(12, 2));
  });
  EXPECT_EQ(center.wait_any(waited, test::in_good_time()), 2U);
  EXPECT_EQ(links[2].near->wait(*ops[2], test::in_good_time()), 12U);
  late.join();
  waited[2] = waited[3];
  links[1].far.reset();
  EXPECT_EQ(center.wait_any(waited, test::in_good_time()), 1U);
  suite::expect_error(ErrorCode::kUnavailable, "", [&] { links[1].near->wait(*ops[1], test::in_good_time()); });
  ops.clear();
}

}  // namespace
}  // namespace ferry
