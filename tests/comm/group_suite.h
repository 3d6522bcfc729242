#pragma once

#include <unistd.h>

#include <array>
#include <memory>

#include "tests/comm/group_cluster.h"
#include "tests/support/asleep.h"

// The promises of comm/group.h as one body of tests. One file per test program includes this and instantiates GroupSuite with
// clusters of its transport.

namespace ferry {

class GroupSuite : public testing::TestWithParam<GroupCluster> {
 protected:
  static void run(const GroupCluster::Body& body) { GetParam().run(body); }
};

inline std::string cluster_name(const testing::TestParamInfo<GroupCluster>& info) { return info.param.name; }

TEST_P(GroupSuite, KnowsItsPlace) {
  run([](Group& group) {
    EXPECT_GE(group.rank().value, 0);
    EXPECT_LT(group.rank().value, group.size());
    EXPECT_EQ(group.async_error(), "");
  });
}

TEST_P(GroupSuite, KeepsOrderWithinATagAndSeparatesTags) {
  run([](Group& group) {
    if (group.size() == 1) return;
    constexpr int kNumMessages = 5;
    const int self = group.rank().value;
    std::vector<suite::Bytes> sent;
    std::vector<std::unique_ptr<PendingOp>> sends;
    for (int i = 0; i < kNumMessages; ++i) sent.push_back(suite::pattern(33, self * 100 + i));
    sent.push_back(suite::pattern(7, self * 100 + 50));
    for (int i = 0; i <= kNumMessages; ++i) {
      sends.push_back(group.isend(sent[static_cast<std::size_t>(i)], suite::next(group), i < kNumMessages ? 3 : 1023));
    }
    // The message that was sent last is received first: it has a tag of its own.
    const int from = suite::previous(group).value;
    suite::Bytes got(7);
    group.wait(*group.irecv(got, Rank{from}, 1023, Fit::kUpTo), test::in_good_time());
    suite::expect_same(got, suite::pattern(7, from * 100 + 50), "the message with the other tag");
    // Receives that are all posted before the first wait, and waited for from the last to the first.
    std::vector<suite::Bytes> received(kNumMessages, suite::Bytes(33));
    std::vector<std::unique_ptr<PendingOp>> receives;
    for (auto& memory : received) receives.push_back(group.irecv(memory, Rank{from}, 3, Fit::kUpTo));
    for (int i = kNumMessages - 1; i >= 0; --i) group.wait(*receives[static_cast<std::size_t>(i)], test::in_good_time());
    for (int i = 0; i < kNumMessages; ++i) {
      suite::expect_same(received[static_cast<std::size_t>(i)], suite::pattern(33, from * 100 + i),
                         "message " + std::to_string(i));
    }
    for (const auto& op : sends) group.wait(*op, test::in_good_time());
  });
}

TEST_P(GroupSuite, AReceiveTellsTheLengthOfItsMessage) {
  run([](Group& group) {
    if (group.size() == 1) return;
    for (const std::size_t size : {0, 1, 33, 65535, 65536, 65537, 100003, 2000003}) {
      const suite::Bytes sent = suite::pattern(size, group.rank().value);
      suite::Bytes got(size + 1001, std::byte{0xee});
      std::size_t received = 12345;
      group.group_start();
      group.send(sent, suite::next(group), 5);
      group.recv(got, suite::previous(group), 5, &received);
      group.group_end(test::in_good_time());
      EXPECT_EQ(received, size);
      got.resize(size);
      suite::expect_same(got, suite::pattern(size, suite::previous(group).value),
                         "the receive of " + std::to_string(size) + " bytes");
    }
  });
}

// A buffer that is used again still holds the message before, which must not count as part of a shorter one.
TEST_P(GroupSuite, AShortMessageAfterALongOneIsShort) {
  run([](Group& group) {
    if (group.size() == 1) return;
    suite::Bytes memory(200003);
    for (const std::size_t size : {200003, 33, 0, 70001, 200003, 1}) {
      const suite::Bytes sent = suite::pattern(size, group.rank().value);
      const auto receive = group.irecv(memory, suite::previous(group), 8, Fit::kUpTo);
      const auto send = group.isend(sent, suite::next(group), 8);
      EXPECT_EQ(group.wait(*receive, test::in_good_time()), size);
      EXPECT_EQ(group.wait(*send, test::in_good_time()), size);
    }
  });
}

TEST_P(GroupSuite, AMessageLargerThanItsReceiveNamesTheRankAndBothSizes) {
  for (const std::size_t size : {34, 70001}) {
    if (size > 4096 && !GetParam().survives_overflow) continue;
    run([size](Group& group) {
      if (group.size() == 1) return;
      const suite::Bytes sent(size);
      if (group.rank() == suite::last(group)) {
        const auto send = group.isend(sent, Rank{0}, 4);
        try {
          group.wait(*send, test::in_good_time());
        } catch (const Error&) {  // rank 0 never asked for the rest of it, and has left
        }
      } else if (group.rank() == Rank{0}) {
        suite::Bytes small(33);
        const auto receive = group.irecv(small, suite::last(group), 4, Fit::kUpTo);
        const std::string what =
            suite::rank_name(suite::last(group)) + ": sent " + std::to_string(size) + " bytes for the recv of at most 33 bytes";
        suite::expect_error(ErrorCode::kInternal, what, [&] { group.wait(*receive, test::in_good_time()); });
        suite::expect_error(ErrorCode::kInternal, what, [&] { group.barrier(test::in_good_time()); });
        group.abort();
      }
    });
  }
}

TEST_P(GroupSuite, AReceiveOfAnExactSizeRefusesAnyOther) {
  for (const auto& [sent_bytes, expected] :
       {std::pair(33, 34), std::pair(70001, 70002), std::pair(70002, 70001), std::pair(33, 70001)}) {
    if (sent_bytes > std::max(expected, 4096) && !GetParam().survives_overflow) continue;
    run([sent_bytes = static_cast<std::size_t>(sent_bytes), expected = static_cast<std::size_t>(expected)](Group& group) {
      if (group.size() == 1) return;
      if (group.rank() == suite::last(group)) {
        const suite::Bytes sent(sent_bytes);
        const auto send = group.isend(sent, Rank{0}, 4);
        try {
          group.wait(*send, test::in_good_time());
        } catch (const Error&) {  // not all of it was wanted, and rank 0 has left
        }
      } else if (group.rank() == Rank{0}) {
        suite::Bytes got(expected);
        const auto receive = group.irecv(got, suite::last(group), 4, Fit::kExact);
        suite::expect_error(ErrorCode::kInternal,
                            suite::rank_name(suite::last(group)) + ": sent " + std::to_string(sent_bytes) +
                                " bytes for the recv of " + std::to_string(expected) + " bytes",
                            [&] { group.wait(*receive, test::in_good_time()); });
        group.abort();
      }
    });
  }
}

TEST_P(GroupSuite, APartOfAnotherSizeThanACollectivesIsRefused) {
  run([](Group& group) {
    if (group.size() == 1) return;
    const std::size_t size = group.rank() == suite::last(group) ? 7 : 8;
    suite::Bytes all(size * static_cast<std::size_t>(group.size()));
    if (group.rank() != Rank{0}) {
      EXPECT_THROW(group.all_gather(suite::Bytes(size), all, test::in_good_time()), Error) << size;
      return;
    }
    suite::expect_error(ErrorCode::kInternal, suite::rank_name(suite::last(group)) + ": sent 7 bytes for the recv of 8 bytes",
                        [&] { group.all_gather(suite::Bytes(size), all, test::in_good_time()); });
    group.abort();  // others may wait for the part of a rank that has failed
  });
}

TEST_P(GroupSuite, ExchangesMessagesOfEverySize) {
  run([](Group& group) {
    if (group.size() == 1) return;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{100003}, std::size_t{20} << 20}) {
      const suite::Bytes sent = suite::pattern(size, group.rank().value);
      suite::Bytes got(size);
      group.group_start();
      group.send(sent, suite::next(group), 0);
      group.recv(got, suite::previous(group), 0);
      group.group_end(test::in_good_time());
      suite::expect_same(got, suite::pattern(size, suite::previous(group).value), std::to_string(size) + " bytes");
    }
  });
}

TEST_P(GroupSuite, GroupsExchangesBetweenAllPairs) {
  run([](Group& group) {
    const auto num_ranks = static_cast<std::size_t>(group.size());
    const int self = group.rank().value;
    const auto size_of = [](int from, int to) { return static_cast<std::size_t>(from * 37 + to * 5) % 41; };
    for (int round = 0; round < 20; ++round) {
      std::vector<suite::Bytes> sent(num_ranks);
      std::vector<suite::Bytes> got(num_ranks);
      group.group_start();
      for (int r = 0; r < group.size(); ++r) {
        if (r == self) continue;
        auto& out = sent[static_cast<std::size_t>(r)] = suite::pattern(size_of(self, r), self * 10 + r + round);
        auto& in = got[static_cast<std::size_t>(r)] = suite::Bytes(size_of(r, self));
        group.send(out, Rank{r}, 9);
        group.recv(in, Rank{r}, 9);
      }
      group.group_end(test::in_good_time());
      for (int r = 0; r < group.size(); ++r) {
        if (r == self) continue;
        suite::expect_same(got[static_cast<std::size_t>(r)], suite::pattern(size_of(r, self), r * 10 + self + round),
                           "the part of " + suite::rank_name(Rank{r}));
      }
    }
  });
}

TEST_P(GroupSuite, NoRankLeavesABarrierBeforeAllHaveEntered) {
  run([](Group& group) {
    using Clock = std::chrono::steady_clock;  // one clock for all processes of a host
    for (int late = 0; late < group.size(); ++late) {
      // The late rank enters when it has heard from each other one, which enters at once.
      std::vector<std::unique_ptr<PendingOp>> about_to_enter;
      if (group.rank().value != late) about_to_enter.push_back(group.isend({}, Rank{late}, 2));
      for (int r = 0; r < group.size() && group.rank().value == late; ++r) {
        if (r != late) group.wait(*group.irecv({}, Rank{r}, 2, Fit::kExact), test::in_good_time());
      }
      std::vector<int64_t> times(static_cast<std::size_t>(group.size()) * 2);
      std::array<int64_t, 2> mine{};
      mine[0] = Clock::now().time_since_epoch().count();
      group.barrier(test::in_good_time());
      mine[1] = Clock::now().time_since_epoch().count();
      for (const auto& op : about_to_enter) group.wait(*op, test::in_good_time());
      group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(times)), test::in_good_time());
      int64_t last_entry = 0;
      int64_t first_exit = times[1];
      for (std::size_t i = 0; i < times.size(); i += 2) {
        last_entry = std::max(last_entry, times[i]);
        first_exit = std::min(first_exit, times[i + 1]);
      }
      EXPECT_LE(last_entry, first_exit) << "rank " << late << " was late";
    }
  });
}

TEST_P(GroupSuite, BroadcastsFromEveryRoot) {
  run([](Group& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const std::size_t size : {0, 1, 33, 100003}) {
        suite::Bytes data = suite::pattern(size, group.rank().value);
        group.broadcast(data, Rank{root}, test::in_good_time());
        suite::expect_same(data, suite::pattern(size, root), "the broadcast of " + suite::rank_name(Rank{root}));
      }
    }
  });
}

TEST_P(GroupSuite, GathersInRankOrder) {
  run([](Group& group) {
    for (const std::size_t size : {0, 1, 33, 100003}) {
      suite::Bytes all(size * static_cast<std::size_t>(group.size()));
      group.all_gather(suite::pattern(size, group.rank().value), all, test::in_good_time());
      suite::Bytes want;
      for (int r = 0; r < group.size(); ++r) {
        const suite::Bytes part = suite::pattern(size, r);
        want.insert(want.end(), part.begin(), part.end());
      }
      suite::expect_same(all, want, "the gathered parts of " + std::to_string(size) + " bytes");
    }
  });
}

// Uneven counts with zeros among them, gaps between the parts, and one byte more room than what arrives.
TEST_P(GroupSuite, SendsEachRankItsPart) {
  run([](Group& group) {
    const int self = group.rank().value;
    const auto count = [](int from, int to) -> int64_t {
      return (from * 7 + to * 3) % 11 == 0 ? 0 : from * 1009 + to * 13 + 1;
    };
    std::vector<int64_t> send_counts;
    std::vector<int64_t> send_offsets;
    std::vector<int64_t> recv_counts;
    std::vector<int64_t> recv_offsets;
    suite::Bytes send;
    suite::Bytes want;
    for (int r = 0; r < group.size(); ++r) {
      send.resize(send.size() + 3);
      send_offsets.push_back(static_cast<int64_t>(send.size()));
      send_counts.push_back(count(self, r));
      const suite::Bytes out = suite::pattern(static_cast<std::size_t>(count(self, r)), self * 50 + r);
      send.insert(send.end(), out.begin(), out.end());
      want.resize(want.size() + 2, std::byte{0xee});
      recv_offsets.push_back(static_cast<int64_t>(want.size()));
      recv_counts.push_back(count(r, self) + 1);
      const suite::Bytes in = suite::pattern(static_cast<std::size_t>(count(r, self)), r * 50 + self);
      want.insert(want.end(), in.begin(), in.end());
      want.push_back(std::byte{0xee});
    }
    suite::Bytes recv(want.size(), std::byte{0xee});
    group.all_to_all_v({send, send_counts, send_offsets, recv, recv_counts, recv_offsets}, test::in_good_time());
    suite::expect_same(recv, want, "what arrived");
  });
}

// The terms cancel only partly and differently for every order of addition, so the order shows in the bits.
TEST_P(GroupSuite, AddsInRankOrder) {
  run([](Group& group) {
    for (const std::size_t size : {0, 1, 33, 1003}) {
      const auto term = [](int rank, std::size_t i) {
        const float magnitude = rank % 3 == 0 ? 1e8F : 0.3F;
        return (rank % 2 == 0 ? 1.0F : -1.0F) * magnitude * (1.0F + static_cast<float>(i) * 0.37F + static_cast<float>(rank));
      };
      std::vector<float> data(size);
      std::vector<float> want(size);
      for (std::size_t i = 0; i < size; ++i) {
        data[i] = term(group.rank().value, i);
        for (int r = 0; r < group.size(); ++r) want[i] = r == 0 ? term(0, i) : want[i] + term(r, i);
      }
      group.all_reduce_sum(data, test::in_good_time());
      EXPECT_TRUE(size == 0 || std::memcmp(data.data(), want.data(), size * sizeof(float)) == 0) << size << " values";
    }
  });
}

TEST_P(GroupSuite, ADeadlineNamesTheSilentRank) {
  run([](Group& group) {
    if (group.size() == 1 || group.rank() != Rank{0}) return;
    const std::string silent = suite::rank_name(suite::last(group));
    suite::Bytes memory(33);
    const auto op = group.irecv(memory, suite::last(group), 4, Fit::kUpTo);
    const Deadline deadline = suite::in_milliseconds(50);
    suite::expect_error(ErrorCode::kDeadlineExceeded, silent, [&] { group.wait(*op, deadline); });
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
    EXPECT_NE(group.async_error().find(silent), std::string::npos) << group.async_error();
    // The group is of no use any more, and says why.
    suite::expect_error(ErrorCode::kDeadlineExceeded, silent, [&] { group.barrier(test::in_good_time()); });
  });
}

TEST_P(GroupSuite, ADeadlineOfAGroupedExchangeNamesTheSilentRank) {
  run([](Group& group) {
    if (group.size() == 1) return;
    const Rank silent = suite::last(group);
    suite::Bytes request(33);
    suite::Bytes reply(33);
    if (group.rank() == silent) return;
    if (group.rank() != Rank{0}) {
      group.wait(*group.isend(request, Rank{0}, 6), test::in_good_time());
      group.wait(*group.isend({}, Rank{0}, 7), test::in_good_time());
      return;
    }
    group.group_start();
    std::vector<suite::Bytes> replies(static_cast<std::size_t>(group.size()), reply);
    for (int r = 1; r < group.size(); ++r) group.recv(replies[static_cast<std::size_t>(r)], Rank{r}, 6);
    // A message that arrives behind the others' messages proves that those have arrived.
    for (int r = 1; r < silent.value; ++r) group.wait(*group.irecv({}, Rank{r}, 7, Fit::kExact), test::in_good_time());
    suite::expect_error(ErrorCode::kDeadlineExceeded, suite::rank_name(silent),
                        [&] { group.group_end(suite::in_milliseconds(50)); });
  });
}

TEST_P(GroupSuite, FailWakesAWaiter) {
  run([](Group& group) {
    if (group.size() == 1 || group.rank() != Rank{0}) return;
    suite::Bytes memory(33);
    const auto op = group.irecv(memory, suite::last(group), 4, Fit::kUpTo);
    std::thread notices_death([&group, waiter = gettid()] {
      test::await_asleep(waiter);
      group.fail(suite::last(group), "struck by lightning");
      group.fail(Rank{0}, "a later failure does not count");
    });
    suite::expect_error(ErrorCode::kUnavailable, "struck by lightning", [&] { group.wait(*op, test::in_good_time()); });
    notices_death.join();
    EXPECT_EQ(group.async_error(), suite::rank_name(suite::last(group)) + ": struck by lightning");
    suite::expect_error(ErrorCode::kUnavailable, "struck by lightning",
                        [&] { (void)group.irecv(memory, suite::last(group), 4, Fit::kUpTo); });
  });
}

TEST_P(GroupSuite, AbortWakesAWaiter) {
  run([](Group& group) {
    if (group.size() == 1 || group.rank() != Rank{0}) return;
    suite::Bytes memory(33);
    const auto op = group.irecv(memory, suite::last(group), 4, Fit::kUpTo);
    std::thread gives_up([&group, waiter = gettid()] {
      test::await_asleep(waiter);
      group.abort();
    });
    suite::expect_error(ErrorCode::kCancelled, "aborted", [&] { group.wait(*op, test::in_good_time()); });
    gives_up.join();
    suite::expect_error(ErrorCode::kCancelled, "aborted", [&] { (void)group.isend(memory, suite::last(group), 4); });
  });
}

TEST_P(GroupSuite, TheAbortOfAPeerIsNoticed) {
  if (!GetParam().notices_departure) GTEST_SKIP() << "this transport reports no departures";
  run([](Group& group) {
    if (group.size() == 1) return;
    if (group.rank() == suite::last(group)) return group.abort();
    if (group.rank() != Rank{0}) return;
    suite::Bytes memory(33);
    suite::expect_error(ErrorCode::kUnavailable, suite::rank_name(suite::last(group)),
                        [&] { group.wait(*group.irecv(memory, suite::last(group), 4, Fit::kUpTo), test::in_good_time()); });
  });
}

}  // namespace ferry
