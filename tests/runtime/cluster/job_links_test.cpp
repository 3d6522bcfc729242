#include "runtime/cluster/job_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/local_group.h"
#include "runtime/base/error.h"
#include "runtime/cluster/coordinator_links.h"
#include "tests/support/eventually.h"
#include "tests/support/in_good_time.h"

namespace ferry {
namespace {

using testing::HasSubstr;

const MeetingPlace kHere{.is_one_host = true, .net_interface = {}};
constexpr int kTag = 7;

/// Runs `act` as every rank of a job, each on a thread of its own.
void run_ranks(int size, const std::function<void(Group&)>& act) {
  std::vector<std::unique_ptr<Group>> groups = make_local_groups(size);
  std::vector<std::thread> threads;
  for (auto& group : groups) threads.emplace_back([&act, &group] { act(*group); });
  for (std::thread& thread : threads) thread.join();
}

void send_number(Link& link, int32_t number) {
  const std::unique_ptr<PendingOp> send = link.isend(std::as_bytes(std::span(&number, 1)), kTag);
  link.wait(*send, test::in_good_time());
}

int32_t receive_number(Link& link) {
  int32_t number = -1;
  const std::unique_ptr<PendingOp> receive = link.irecv(std::as_writable_bytes(std::span(&number, 1)), kTag, Fit::kExact);
  link.wait(*receive, test::in_good_time());
  return number;
}

TEST(JobLinks, EachCoordinatorReachesEachWorkerByItsOwnNumbers) {
  const JobShape shape{.num_ranks = 5, .num_coordinators = 2};
  run_ranks(shape.num_ranks, [&](Group& group) {
    JobLinks links(group, shape, kHere, {}, test::in_good_time());
    if (shape.is_coordinator(group.rank())) {
      for (int32_t w = 1; w <= shape.num_workers(); ++w) send_number(links.link(Rank{w}), 100 * group.rank().value + w);
      for (int32_t w = 1; w <= shape.num_workers(); ++w) EXPECT_EQ(receive_number(links.link(Rank{w})), w);
      return;
    }
    const int32_t own = shape.in_job(group.rank()).value;
    for (int32_t c = 0; c < shape.num_coordinators; ++c) {
      EXPECT_EQ(links.link(Rank{c}).peer(), Rank{c});
      EXPECT_EQ(receive_number(links.link(Rank{c})), 100 * c + own);
    }
    for (int32_t c = 0; c < shape.num_coordinators; ++c) send_number(links.link(Rank{c}), own);
  });
}

TEST(JobLinks, ACoordinatorThatEndsIsTheEndOfItsOwnLinksAlone) {
  const JobShape shape{.num_ranks = 3, .num_coordinators = 2};
  run_ranks(shape.num_ranks, [&](Group& group) {
    JobLinks links(group, shape, kHere, {}, test::in_good_time());
    if (group.rank() == Rank{0}) return;
    if (group.rank() == Rank{1}) {
      EXPECT_EQ(receive_number(links.link(Rank{1})), 5) << "sent after the other coordinator had gone";
      return;
    }
    EXPECT_THROW(receive_number(links.link(Rank{0})), Error);
    send_number(links.link(Rank{1}), 5);
  });
}

TEST(CoordinatorLinks, TheFirstHearsWhereAllAre) {
  const JobShape shape{.num_ranks = 5, .num_coordinators = 3};
  run_ranks(shape.num_ranks, [&](Group& group) {
    CoordinatorLinks links(group, shape, kHere, test::in_good_time());
    if (!shape.is_coordinator(group.rank())) return;
    EXPECT_EQ(links.index(), group.rank().value);
    EXPECT_EQ(links.count(), 3);
    EXPECT_EQ(links.host(), "");
    const std::string own = "host:" + std::to_string(links.index());
    const std::vector<CoordinatorLinks::Ports> ports =
        links.gather({.http = own, .grpc = links.index() == 1 ? "" : own + "9"}, test::in_good_time());
    if (!links.is_first()) {
      EXPECT_TRUE(ports.empty());
      return;
    }
    ASSERT_EQ(ports.size(), 3u);
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(ports[c].http, "host:" + std::to_string(c));
      EXPECT_EQ(ports[c].grpc, c == 1 ? "" : "host:" + std::to_string(c) + "9");
    }
  });
}

TEST(CoordinatorLinks, OthersLeaveWhenTheFirstSaysSoOrIsGone) {
  for (const bool says_so : {true, false}) {
    const JobShape shape{.num_ranks = 3, .num_coordinators = 2};
    run_ranks(shape.num_ranks, [&](Group& group) {
      CoordinatorLinks links(group, shape, kHere, test::in_good_time());
      if (group.rank() == Rank{0}) {
        links.gather({.http = "a:1", .grpc = ""}, test::in_good_time());
        EXPECT_FALSE(links.is_told_to_leave());
        if (says_so) links.tell_to_leave();
      } else if (group.rank() == Rank{1}) {
        EXPECT_FALSE(links.is_told_to_leave()) << "the first waits for its ports";
        links.gather({.http = "b:1", .grpc = ""}, test::in_good_time());
        eventually([&] { return links.is_told_to_leave(); }, "the first one's word or end");
        EXPECT_TRUE(links.is_told_to_leave()) << "and stays so";
      }
    });
  }
}

TEST(CoordinatorLinks, AnAddressThatDoesNotFitIsRefused) {
  const JobShape shape{.num_ranks = 2, .num_coordinators = 2};
  run_ranks(shape.num_ranks, [&](Group& group) {
    CoordinatorLinks links(group, shape, kHere, test::in_good_time());
    try {
      links.gather({.http = std::string(links.is_first() ? 10 : 256, 'h'), .grpc = ""}, test::in_good_time());
      ADD_FAILURE() << "rank " << group.rank().value;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(links.is_first() ? "rank 1" : "256 characters; allowed: up to 255"));
    }
  });
}

}  // namespace
}  // namespace ferry
