#include "comm/gloo/gloo_group.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "tests/comm/group_suite.h"
#include "tests/comm/patient_gloo.h"
#include "tests/comm/thread_cluster.h"
#include "tests/support/asleep.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

std::unique_ptr<Group> connect_patiently(Group& local) { return make_gloo_group(local, suite::patient_gloo()); }

INSTANTIATE_TEST_SUITE_P(Gloo, GroupSuite,
                         testing::Values(thread_cluster("ranks", 1, connect_patiently),
                                         thread_cluster("ranks", 2, connect_patiently),
                                         thread_cluster("ranks", 4, connect_patiently),
                                         thread_cluster("ranks", 7, connect_patiently)),
                         cluster_name);

TEST(GlooGroup, APeerThatLeavesIsNotADeath) {
  run_on_threads(3, [](Group& local) {
    std::unique_ptr<Group> group = connect_patiently(local);
    if (group->rank() == Rank{1}) group.reset();
    local.barrier(test::in_good_time());
    if (group != nullptr) {
      const Rank other{2 - group->rank().value};
      suite::Bytes got(33);
      const suite::Bytes sent = suite::pattern(33, group->rank().value);
      group->group_start();
      group->send(sent, other, 1);
      group->recv(got, other, 1);
      group->group_end(test::in_good_time());
      suite::expect_same(got, suite::pattern(33, other.value), "the exchange of the two that stayed");
      EXPECT_EQ(group->async_error(), "");
      suite::expect_error(ErrorCode::kUnavailable, "rank 1",
                          [&] { group->wait(*group->irecv(got, Rank{1}, 1, Fit::kUpTo), test::in_good_time()); });
    }
    local.barrier(test::in_good_time());
  });
}

// Rank 0 waits for rank 1, which is alive, when rank 2 goes down.
TEST(GlooGroup, AWaitForAnotherRankNamesTheLostOne) {
  run_on_threads(3, [](Group& local) {
    const std::unique_ptr<Group> group = connect_patiently(local);
    if (group->rank() == Rank{2}) group->abort();
    if (group->rank() == Rank{0}) {
      suite::Bytes got(33);
      suite::expect_error(ErrorCode::kUnavailable, "rank 2",
                          [&] { group->wait(*group->irecv(got, Rank{1}, 1, Fit::kUpTo), test::in_good_time()); });
    }
    local.barrier(test::in_good_time());
  });
}

TEST(GlooGroup, BindsToAnInterfaceOrAddress) {
  for (const std::string where : {"lo", "127.0.0.1", "localhost"}) {
    run_on_threads(2, [&](Group& local) {
      GlooOptions options = suite::patient_gloo();
      options.net_interface = where;
      make_gloo_group(local, options)->barrier(test::in_good_time());
      local.barrier(test::in_good_time());
    });
  }
}

constexpr std::size_t kLongBytes = 5'000'000;

/// Rank 0 has received a long message from rank 1, and waits for none.
void begin_with_a_long_message(Group& group, suite::Bytes& room) {
  if (group.rank() == Rank{1}) {
    const suite::Bytes first = suite::pattern(kLongBytes, 1);
    group.wait(*group.isend(first, Rank{0}, 3), test::in_good_time());
  } else {
    EXPECT_EQ(group.wait(*group.irecv(room, Rank{1}, 3, Fit::kUpTo), test::in_good_time()), kLongBytes);
  }
}

TEST(GlooGroup, ALongMessageArrivesWhileItsReceiverIsBusy) {
  run_on_threads(2, [](Group& local) {
    const std::unique_ptr<Group> group = connect_patiently(local);
    suite::Bytes room(2 * kLongBytes);
    begin_with_a_long_message(*group, room);
    if (group->rank() == Rank{1}) {
      const suite::Bytes sent = suite::pattern(kLongBytes, 2);
      group->wait(*group->isend(sent, Rank{0}, 3), test::in_good_time());
      local.barrier(test::in_good_time());
    } else {
      const std::unique_ptr<PendingOp> receive = group->irecv(room, Rank{1}, 3, Fit::kUpTo);
      local.barrier(test::in_good_time());  // only a message that has left lets rank 1 come here
      EXPECT_EQ(group->wait(*receive, test::in_good_time()), kLongBytes);
      room.resize(kLongBytes);
      suite::expect_same(room, suite::pattern(kLongBytes, 2), "the second message");
    }
    local.barrier(test::in_good_time());
  });
}

/// Each of two ranks waits for these turns, so that a frame is taken at the place that the test chooses.
struct Turns {
  std::atomic<pid_t> receiver{0};
  std::atomic<int> num_posted{0};  // receives
  std::atomic<int> num_left{0};    // messages that have left their sender
};

void send_in_turn(Group& group, Turns& turns, int number, std::size_t bytes) {
  if (number % 4 == 1) {
    eventually([&] { return turns.num_posted > number; }, "receive " + std::to_string(number));
    test::await_asleep(turns.receiver);
  }
  const suite::Bytes sent = suite::pattern(bytes, number);
  group.wait(*group.isend(sent, Rank{0}, 3), test::in_good_time());
  turns.num_left = number + 1;
}

void receive_in_turn(Group& group, Turns& turns, int number, std::size_t bytes, bool leaves_by_itself, suite::Bytes& room) {
  const std::unique_ptr<PendingOp> receive = group.irecv(room, Rank{1}, 3, Fit::kUpTo);
  turns.num_posted = number + 1;
  if (number % 4 == 2 && leaves_by_itself)
    eventually([&] { return turns.num_left > number; }, "message " + std::to_string(number) + " to leave");
  ASSERT_EQ(group.wait(*receive, test::in_good_time()), bytes);
  suite::expect_same(suite::Bytes(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(bytes)),
                     suite::pattern(bytes, number), "message " + std::to_string(number));
}

// The receiver comes back to its receives before their frames are there, after they were taken, or whenever that is.
TEST(GlooGroup, LongAndShortMessagesInTurnAreReceivedWhole) {
  Turns turns;
  run_on_threads(2, [&](Group& local) {
    const std::unique_ptr<Group> group = connect_patiently(local);
    suite::Bytes room(2 * kLongBytes);
    if (group->rank() == Rank{0}) turns.receiver = gettid();
    for (int i = 0; i < 200; ++i) {
      const bool is_short = i % 3 == 2, was_long = i % 3 == 1;  // behind a long one a long one leaves by itself
      const std::size_t bytes = is_short ? 100 : 70'000 + 1000 * static_cast<std::size_t>(i);
      if (group->rank() == Rank{1}) {
        send_in_turn(*group, turns, i, bytes);
      } else {
        receive_in_turn(*group, turns, i, bytes, is_short || was_long, room);
      }
    }
    local.barrier(test::in_good_time());
  });
}

TEST(GlooGroup, AMessageThatIsTooLongIsRefusedByWhoWaitsThoughItsFrameWasTakenEarly) {
  run_on_threads(2, [](Group& local) {
    const std::unique_ptr<Group> group = connect_patiently(local);
    suite::Bytes room(kLongBytes);
    begin_with_a_long_message(*group, room);
    if (group->rank() == Rank{1}) {
      const suite::Bytes sent = suite::pattern(kLongBytes + 1, 2);
      const std::unique_ptr<PendingOp> send = group->isend(sent, Rank{0}, 3);
      local.barrier(test::in_good_time());
      group->abort();
    } else {
      const std::unique_ptr<PendingOp> receive = group->irecv(room, Rank{1}, 3, Fit::kUpTo);
      eventually([&] { return !group->async_error().empty(); }, "the frame to be taken");
      suite::expect_error(ErrorCode::kInternal, "sent 5000001 bytes", [&] { group->wait(*receive, test::in_good_time()); });
      local.barrier(test::in_good_time());
    }
    local.barrier(test::in_good_time());
  });
}

TEST(GlooGroup, AReceiveWhoseFrameIsAwaitedMayBeGivenUp) {
  run_on_threads(2, [](Group& local) {
    const std::unique_ptr<Group> group = connect_patiently(local);
    suite::Bytes room(kLongBytes);
    begin_with_a_long_message(*group, room);
    if (group->rank() == Rank{0}) {
      std::unique_ptr<PendingOp> receive = group->irecv(room, Rank{1}, 3, Fit::kUpTo);
      test::await_quiet();  // somebody waits for the frame
      group->abort();
      receive.reset();
    }
    local.barrier(test::in_good_time());
  });
}

// Both ranks learn at once, also the one whose own address is fine.
TEST(GlooGroup, AnUnusableInterfaceIsAnErrorOnEveryRank) {
  run_on_threads(2, [](Group& local) {
    GlooOptions options = suite::patient_gloo();
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
    const std::unique_ptr<Group> group = connect_patiently(local);
    if (local.rank() == Rank{0}) {
      EXPECT_EQ(num_keepalive_sockets() - num_before, 6);  // both ends of three connections
    }
    local.barrier(test::in_good_time());
  });
}

}  // namespace
}  // namespace ferry
