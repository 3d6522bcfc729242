#include "comm/gloo/gloo_group.h"

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/comm/group_suite.h"
#include "tests/comm/thread_cluster.h"

namespace ferry {
namespace {

std::unique_ptr<Group> connect_default(Group& local) { return make_gloo_group(local, {}); }

INSTANTIATE_TEST_SUITE_P(Gloo, GroupSuite,
                         testing::Values(thread_cluster("ranks", 1, connect_default),
                                         thread_cluster("ranks", 2, connect_default),
                                         thread_cluster("ranks", 4, connect_default),
                                         thread_cluster("ranks", 7, connect_default)),
                         cluster_name);

TEST(GlooGroup, APeerThatLeavesIsNotADeath) {
  run_on_threads(3, [](Group& local) {
    std::unique_ptr<Group> group = connect_default(local);
    if (group->rank() == Rank{1}) group.reset();
    local.barrier(suite::in_seconds(30));
    if (group != nullptr) {
      const Rank other{2 - group->rank().value};
      suite::Bytes got(33);
      const suite::Bytes sent = suite::pattern(33, group->rank().value);
      group->group_start();
      group->send(sent, other, 1);
      group->recv(got, other, 1);
      group->group_end(suite::in_seconds(30));
      suite::expect_same(got, suite::pattern(33, other.value), "the exchange of the two that stayed");
      EXPECT_EQ(group->async_error(), "");
      suite::expect_error(ErrorCode::kUnavailable, "rank 1",
                          [&] { group->wait(*group->irecv(got, Rank{1}, 1, Fit::kUpTo), suite::in_seconds(60)); });
    }
    local.barrier(suite::in_seconds(30));
  });
}

// Rank 0 waits for rank 1, which is alive, when rank 2 goes down.
TEST(GlooGroup, AWaitForAnotherRankNamesTheLostOne) {
  run_on_threads(3, [](Group& local) {
    const std::unique_ptr<Group> group = connect_default(local);
    if (group->rank() == Rank{2}) group->abort();
    if (group->rank() == Rank{0}) {
      suite::Bytes got(33);
      suite::expect_error(ErrorCode::kUnavailable, "rank 2",
                          [&] { group->wait(*group->irecv(got, Rank{1}, 1, Fit::kUpTo), suite::in_seconds(60)); });
    }
    local.barrier(suite::in_seconds(30));
  });
}

TEST(GlooGroup, BindsToAnInterfaceOrAddress) {
  for (const std::string where : {"lo", "127.0.0.1", "localhost"}) {
    run_on_threads(2, [&](Group& local) {
      GlooOptions options;
      options.net_interface = where;
      make_gloo_group(local, options)->barrier(suite::in_seconds(30));
      local.barrier(suite::in_seconds(30));
    });
  }
}

constexpr std::size_t kLongBytes = 5'000'000;

/// Rank 0 has received a long message from rank 1, and waits for none.
void begin_with_a_long_message(Group& group, suite::Bytes& room) {
  if (group.rank() == Rank{1}) {
    const suite::Bytes first = suite::pattern(kLongBytes, 1);
    group.wait(*group.isend(first, Rank{0}, 3), suite::in_seconds(30));
  } else {
    EXPECT_EQ(group.wait(*group.irecv(room, Rank{1}, 3, Fit::kUpTo), suite::in_seconds(30)), kLongBytes);
  }
}

TEST(GlooGroup, ALongMessageArrivesWhileItsReceiverIsBusy) {
  run_on_threads(2, [](Group& local) {
    const std::unique_ptr<Group> group = connect_default(local);
    suite::Bytes room(2 * kLongBytes);
    begin_with_a_long_message(*group, room);
    if (group->rank() == Rank{1}) {
      const suite::Bytes sent = suite::pattern(kLongBytes, 2);
      group->wait(*group->isend(sent, Rank{0}, 3), suite::in_seconds(30));
      local.barrier(suite::in_seconds(30));
    } else {
      const std::unique_ptr<PendingOp> receive = group->irecv(room, Rank{1}, 3, Fit::kUpTo);
      local.barrier(suite::in_seconds(30));  // only a message that has left lets rank 1 come here
      EXPECT_EQ(group->wait(*receive, suite::in_seconds(30)), kLongBytes);
      room.resize(kLongBytes);
      suite::expect_same(room, suite::pattern(kLongBytes, 2), "the second message");
    }
    local.barrier(suite::in_seconds(30));
  });
}

// The receiver comes back to its receives before, while and after their frames are taken.
TEST(GlooGroup, LongAndShortMessagesInTurnAreReceivedWhole) {
  run_on_threads(2, [](Group& local) {
    const std::unique_ptr<Group> group = connect_default(local);
    suite::Bytes room(2 * kLongBytes);
    for (int i = 0; i < 200; ++i) {
      const std::size_t bytes = i % 3 == 2 ? 100 : 70'000 + 1000 * static_cast<std::size_t>(i);
      if (group->rank() == Rank{1}) {
        if (i % 4 == 1) std::this_thread::sleep_for(std::chrono::microseconds(50 * (i % 16)));
        const suite::Bytes sent = suite::pattern(bytes, i);
        group->wait(*group->isend(sent, Rank{0}, 3), suite::in_seconds(30));
      } else {
        const std::unique_ptr<PendingOp> receive = group->irecv(room, Rank{1}, 3, Fit::kUpTo);
        if (i % 4 == 2) std::this_thread::sleep_for(std::chrono::microseconds(50 * (i % 16)));
        ASSERT_EQ(group->wait(*receive, suite::in_seconds(30)), bytes);
        suite::expect_same(suite::Bytes(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(bytes)),
                           suite::pattern(bytes, i), "message " + std::to_string(i));
      }
    }
    local.barrier(suite::in_seconds(30));
  });
}

TEST(GlooGroup, AMessageThatIsTooLongIsRefusedByWhoWaitsThoughItsFrameWasTakenEarly) {
  run_on_threads(2, [](Group& local) {
    const std::unique_ptr<Group> group = connect_default(local);
    suite::Bytes room(kLongBytes);
    begin_with_a_long_message(*group, room);
    if (group->rank() == Rank{1}) {
      const suite::Bytes sent = suite::pattern(kLongBytes + 1, 2);
      const std::unique_ptr<PendingOp> send = group->isend(sent, Rank{0}, 3);
      local.barrier(suite::in_seconds(30));
      group->abort();
    } else {
      const std::unique_ptr<PendingOp> receive = group->irecv(room, Rank{1}, 3, Fit::kUpTo);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      suite::expect_error(ErrorCode::kInternal, "sent 5000001 bytes", [&] { group->wait(*receive, suite::in_seconds(30)); });
      local.barrier(suite::in_seconds(30));
    }
    local.barrier(suite::in_seconds(30));
  });
}

TEST(GlooGroup, AReceiveWhoseFrameIsAwaitedMayBeGivenUp) {
  run_on_threads(2, [](Group& local) {
    const std::unique_ptr<Group> group = connect_default(local);
    suite::Bytes room(kLongBytes);
    begin_with_a_long_message(*group, room);
    if (group->rank() == Rank{0}) {
      std::unique_ptr<PendingOp> receive = group->irecv(room, Rank{1}, 3, Fit::kUpTo);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      group->abort();
      receive.reset();
    }
    local.barrier(suite::in_seconds(30));
  });
}

// Both ranks learn at once, also the one whose own address is fine.
TEST(GlooGroup, AnUnusableInterfaceIsAnErrorOnEveryRank) {
  run_on_threads(2, [](Group& local) {
    GlooOptions options;
    if (local.rank() == Rank{1}) options.net_interface = "no-such-interface";
    const bool is_culprit = local.rank() == Rank{1};
    suite::expect_error(is_culprit ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
                        is_culprit ? "'no-such-interface'" : "rank 1", [&] { (void)make_gloo_group(local, options); });
  });
}

int num_keepalive_sockets() {
  int num_found = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int is_on = 0;
    socklen_t bytes = sizeof(is_on);
    if (getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &is_on, &bytes) == 0 && is_on != 0) ++num_found;
  }
  return num_found;
}

TEST(GlooGroup, TheKernelProbesEveryConnection) {
  const int num_before = num_keepalive_sockets();
  run_on_threads(3, [&](Group& local) {
    const std::unique_ptr<Group> group = connect_default(local);
    if (local.rank() == Rank{0}) {
      EXPECT_EQ(num_keepalive_sockets() - num_before, 6);  // both ends of three connections
    }
    local.barrier(suite::in_seconds(30));
  });
}

}  // namespace
}  // namespace ferry
