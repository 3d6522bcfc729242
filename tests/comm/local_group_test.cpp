#include "comm/local_group.h"

#include "tests/comm/group_suite.h"
#include "tests/comm/thread_cluster.h"

namespace ferry {
namespace {

INSTANTIATE_TEST_SUITE_P(Local, GroupSuite,
                         testing::Values(thread_cluster("ranks", 1, {}), thread_cluster("ranks", 2, {}),
                                         thread_cluster("ranks", 4, {}), thread_cluster("ranks", 7, {})),
                         cluster_name);

TEST(LocalGroup, MessagesOfARankThatLeftStillArrive) {
  auto groups = make_local_groups(2);
  const suite::Bytes sent = suite::pattern(33, 1);
  groups[1]->wait(*groups[1]->isend(sent, Rank{0}, 2), test::in_good_time());
  groups[1].reset();
  suite::Bytes got(33);
  groups[0]->wait(*groups[0]->irecv(got, Rank{1}, 2, Fit::kUpTo), test::in_good_time());
  suite::expect_same(got, sent, "the last message");
  suite::expect_error(ErrorCode::kUnavailable, "rank 1",
                      [&] { groups[0]->wait(*groups[0]->irecv(got, Rank{1}, 2, Fit::kUpTo), test::in_good_time()); });
}

// Counts its operations and refuses the third: the caller's memory may go as soon as the exception leaves.
class RefusingGroup final : public Group {
 public:
  const char* name() const override { return "refusing"; }
  Rank rank() const override { return Rank{0}; }
  int size() const override { return 2; }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte>, Rank, int) override { return start(); }
  std::unique_ptr<PendingOp> irecv(std::span<std::byte>, Rank, int, Fit) override { return start(); }
  std::size_t wait(PendingOp&, Deadline) override { throw Error(ErrorCode::kUnavailable, "refused"); }
  void fail(Rank, const std::string&) override {}
  std::string async_error() const override { return {}; }
  void abort() override {}

  int num_alive = 0;
  int num_left = 2;

 private:
  struct CountedOp : PendingOp {
    explicit CountedOp(int* count) : PendingOp({}), num_alive(count) { ++*num_alive; }
    ~CountedOp() override { --*num_alive; }
    int* num_alive;
  };
  std::unique_ptr<PendingOp> start() {
    if (num_left-- == 0) throw Error(ErrorCode::kUnavailable, "refused");
    return std::make_unique<CountedOp>(&num_alive);
  }
};

TEST(Group, AnErrorDropsWhatWasPosted) {
  RefusingGroup group;
  suite::Bytes memory(33);
  group.group_start();
  group.recv(memory, Rank{1}, 0);
  group.send(memory, Rank{1}, 0);
  EXPECT_EQ(group.num_alive, 2);
  suite::expect_error(ErrorCode::kUnavailable, "refused", [&] { group.send(memory, Rank{1}, 0); });
  EXPECT_EQ(group.num_alive, 0);
  group.num_left = 2;
  group.group_start();
  group.recv(memory, Rank{1}, 0);
  suite::expect_error(ErrorCode::kUnavailable, "refused", [&] { group.group_end(test::in_good_time()); });
  EXPECT_EQ(group.num_alive, 0);
}

TEST(LocalGroupDeathTest, BrokenProtocolsEndTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto groups = make_local_groups(2);
  const suite::Bytes sent(34);
  suite::Bytes small(33);
  EXPECT_DEATH((void)groups[0]->irecv(small, Rank{2}, 2, Fit::kUpTo), "rank 2");
  EXPECT_DEATH((void)groups[0]->irecv(small, Rank{0}, 2, Fit::kUpTo), "with itself");
  EXPECT_DEATH(groups[0]->send(sent, Rank{1}, 2), "outside group_start");
  groups[0]->group_start();
  EXPECT_DEATH(groups[0]->send(sent, Rank{1}, Group::kNumTags), "tag 1024");
}

}  // namespace
}  // namespace ferry
