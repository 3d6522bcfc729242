#include "comm/gloo/gloo_group.h"

#include <sys/socket.h>

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
