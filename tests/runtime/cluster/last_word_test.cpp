#include "runtime/cluster/last_word.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/local_group.h"
#include "runtime/base/error.h"
#include "runtime/cluster.h"
#include "tests/comm/link_pair.h"
#include "tests/support/asleep.h"
#include "tests/support/in_good_time.h"

// How a job's start ends: nobody takes a rank that leaves for a lost one.

namespace ferry {
namespace {

using std::chrono::milliseconds;

/// A rank's place in a group. From be_late() on it hears of everything when the others can do nothing any more without it.
class LateGroup final : public Group {
 public:
  explicit LateGroup(std::unique_ptr<Group> group) : group_(std::move(group)) {}

  void be_late() { is_late_ = true; }

  const char* name() const override { return group_->name(); }
  Rank rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) override {
    return group_->isend(data, to, tag);
  }
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) override {
    return group_->irecv(data, from, tag, fit);
  }
  std::size_t wait(PendingOp& op, Deadline deadline) override {
    const std::size_t num_bytes = group_->wait(op, deadline);
    if (is_late_) test::await_quiet();
    return num_bytes;
  }
  void fail(Rank rank, const std::string& reason) override {
    has_failed_ = true;
    group_->fail(rank, reason);
  }
  std::string async_error() const override { return group_->async_error(); }
  void abort() override { group_->abort(); }
  bool has_failed() const { return has_failed_; }

 private:
  const std::unique_ptr<Group> group_;
  std::atomic<bool> is_late_{false};
  std::atomic<bool> has_failed_{false};
};

/// A worker stays until its coordinator has gone.
void await_end(Link& link) {
  EXPECT_THROW(link.wait(*link.irecv({}, 0, Fit::kExact), test::in_good_time()), Error);
  EXPECT_TRUE(link.failure());
}

/// The ranks of a job agree, the last one late, and coordinators leave at once: who was told of a loss, and why agree() threw.
std::vector<std::string> losses_of_a_short_job(int num_coordinators) {
  constexpr int kNumRanks = 4;
  std::vector<std::unique_ptr<Group>> groups = make_local_groups(kNumRanks);
  std::mutex mutex;
  std::vector<std::string> losses;
  const auto run = [&](std::unique_ptr<Group> place) {
    const std::string name = "rank " + std::to_string(place->rank().value) + ": ";
    auto late = std::make_unique<LateGroup>(std::move(place));
    LateGroup& group = *late;
    try {
      Cluster cluster(std::move(late), TransportKind::kAuto, num_coordinators);
      const auto prepare = [&]() -> Cluster::Terms {
        if (group.rank() == Rank{kNumRanks - 1}) group.be_late();
        return {};
      };
      cluster.agree(prepare, kTestLimit);
      for (int32_t c = 0; !cluster.is_coordinator() && c < num_coordinators; ++c) await_end(cluster.link(Rank{c}));
      const std::scoped_lock lock(mutex);
      if (group.has_failed()) losses.push_back(name + group.async_error());
    } catch (const Error& error) {
      const std::scoped_lock lock(mutex);
      losses.push_back(name + error.what());
    }
  };
  std::vector<std::thread> threads;
  for (auto& group : groups) threads.emplace_back([&run, &group] { run(std::move(group)); });
  for (std::thread& thread : threads) thread.join();
  return losses;
}

TEST(LastWord, ACoordinatorThatLeavesAtOnceOvertakesNoHandshake) {
  for (const int num_coordinators : {1, 2}) EXPECT_EQ(losses_of_a_short_job(num_coordinators), std::vector<std::string>());
}

TEST(LastWord, IsHeardOfAllThatAreThere) {
  StreamHub coordinator, first, second;
  LinkPair with_first(coordinator, Rank{1}, first, Rank{0}), with_second(coordinator, Rank{2}, second, Rank{0});
  std::vector<Link*> workers{with_first.near.get(), with_second.near.get()};
  std::atomic<bool> has_said{false};
  std::thread late([&, coordinating = gettid()] {
    test::await_asleep(coordinating);
    has_said = true;
    Link* const link = with_second.far.get();
    say_last_word(second, {&link, 1});
  });
  Link* const link = with_first.far.get();
  say_last_word(first, {&link, 1});
  hear_last_words(workers, test::in_good_time());
  EXPECT_TRUE(has_said);
  late.join();
}

TEST(LastWord, WhoIsGoneOrSilentIsNotWaitedForForEver) {
  StreamHub coordinator, first, second;
  LinkPair gone(coordinator, Rank{1}, first, Rank{0}), silent(coordinator, Rank{2}, second, Rank{0});
  gone.far.reset();
  Link* worker = gone.near.get();
  const Deadline never = std::chrono::steady_clock::now() + std::chrono::hours(1);
  hear_last_words({&worker, 1}, never);
  worker = silent.near.get();
  hear_last_words({&worker, 1}, std::chrono::steady_clock::now() + milliseconds(10));
  EXPECT_FALSE(silent.near->failure());
  silent.near.reset();
  Link* const link = silent.far.get();
  EXPECT_NO_THROW(say_last_word(second, {&link, 1}));
}

}  // namespace
}  // namespace ferry
