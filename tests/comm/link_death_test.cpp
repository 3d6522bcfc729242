#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "comm/stream/stream_hub.h"
#include "tests/comm/group_cluster.h"
#include "tests/comm/patient_rendezvous.h"
#include "tests/support/asleep.h"
#include "tests/support/eventually.h"

// Processes that join are killed in the middle of whatever they do, while others go on: FERRY_LINK_ECHO is such a process.

extern char** environ;

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using suite::Bytes;

constexpr const char* kKey = "correct horse";
constexpr int kNumKills = 30;

pid_t start_echo(const std::string& address) {
  std::string program = FERRY_LINK_ECHO, place = address, key = kKey;
  char* argv[] = {program.data(), place.data(), key.data(), nullptr};
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, argv, environ), 0);
  return child;
}

/// Admits everybody and notes who ended when.
class Coordinator {
 public:
  std::string address() const { return rendezvous_.address(); }

  std::unique_ptr<Link> take(int member) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kTestLimit, [&] { return links_.contains(member); }));
    return std::move(links_.extract(member).mapped());
  }
  /// When the hub told that `member` broke off.
  Clock::time_point end_of(int member) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kTestLimit, [&] { return ends_.contains(member); }));
    return ends_[member];
  }
  StreamHub& hub() { return hub_; }

 private:
  void note_end(Rank peer, LinkEnd end) {
    const std::scoped_lock lock(mutex_);
    if (end == LinkEnd::kBroken) ends_[peer.value] = Clock::now();
    changed_.notify_all();
  }
  void welcome(Rank member, FileDescriptor socket) {
    auto link = hub_.adopt(std::move(socket), member);
    const std::scoped_lock lock(mutex_);
    links_[member.value] = std::move(link);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Clock::time_point> ends_;
  StreamHub hub_{[this](Rank peer, LinkEnd end, const std::string&) { note_end(peer, end); }};
  std::map<int, std::unique_ptr<Link>> links_;
  std::atomic<int> next_member_{1};
  Rendezvous rendezvous_{
      "127.0.0.1:0", kKey,
      [this](const Newcomer&) { return Rendezvous::Place{.member = Rank{next_member_++}, .epoch = 1, .instructions = {}}; },
      [this](const Rendezvous::Place& place, FileDescriptor socket) { welcome(place.member, std::move(socket)); },
      suite::kPatient};
};

void round_trip(Link& link, std::size_t bytes, int seed) {
  const Bytes sent = suite::pattern(bytes, seed);
  Bytes got(bytes);
  const auto receive = link.irecv(got, 2, Fit::kExact);
  const auto send = link.isend(sent, 1);
  link.wait(*receive, test::in_good_time());
  link.wait(*send, test::in_good_time());
  suite::expect_same(got, sent, "what came back");
}

/// Kills `victim` in the middle of a round trip and returns how long nobody knew, in us.
double kill_and_notice(Coordinator& coordinator, Link& link, pid_t victim, int round) {
  const Bytes sent = suite::pattern(round % 3 == 0 ? 64 : 1 << 20, round);
  Bytes got(sent.size());
  const auto receive = link.irecv(got, 2, Fit::kExact);
  std::unique_ptr<PendingOp> send;
  if (round % 2 == 0) send = link.isend(sent, 1);
  if (round % 5 == 0) eventually([&] { return test::is_quiet(victim); }, "the victim to wait");
  const auto killed = Clock::now();
  kill(victim, SIGKILL);
  const int member = link.peer().value;
  try {
    for (int i = 0; i < 1000; ++i) link.wait(*link.irecv(got, 3, Fit::kUpTo), test::in_good_time());
    ADD_FAILURE() << "member " << member << " lives on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(member)), std::string::npos) << error.what();
  }
  return std::chrono::duration<double, std::micro>(coordinator.end_of(member) - killed).count();
}

TEST(LinkDeath, KillsAreNoticedAndTouchNobodyElse) {
  Coordinator coordinator;
  const pid_t lasting = start_echo(coordinator.address());
  const auto lasting_link = coordinator.take(1);
  std::vector<double> noticed_us;
  for (int round = 0; round < kNumKills; ++round) {
    const pid_t victim = start_echo(coordinator.address());
    const auto link = coordinator.take(2 + round);
    round_trip(*link, 5000, round);
    noticed_us.push_back(kill_and_notice(coordinator, *link, victim, round));
    EXPECT_EQ(waitpid(victim, nullptr, 0), victim);
    for (int i = 0; i < 20; ++i) round_trip(*lasting_link, i % 2 == 0 ? 64 : 300000, i);
  }
  EXPECT_FALSE(lasting_link->failure());
  std::ranges::sort(noticed_us);
  std::printf("%d kills noticed: median %.0f us, longest %.0f us\n", kNumKills, noticed_us[kNumKills / 2], noticed_us.back());
  kill(lasting, SIGKILL);
  EXPECT_EQ(waitpid(lasting, nullptr, 0), lasting);
}

TEST(LinkDeath, AProcessThatStandsStillIsAlive) {
  Coordinator coordinator;
  const pid_t sleeper = start_echo(coordinator.address());
  const auto link = coordinator.take(1);
  round_trip(*link, 64, 1);
  kill(sleeper, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(sleeper, &status, WUNTRACED), sleeper);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  const Bytes sent = suite::pattern(64, 2);
  Bytes got(64);
  const auto receive = link->irecv(got, 2, Fit::kExact);
  const auto send = link->isend(sent, 1);
  suite::expect_error(ErrorCode::kDeadlineExceeded, "rank 1: silent",
                      [&] { link->wait(*receive, suite::in_milliseconds(50)); });
  kill(sleeper, SIGCONT);
  link->wait(*receive, test::in_good_time());
  link->wait(*send, test::in_good_time());
  suite::expect_same(got, sent, "the late answer");
  kill(sleeper, SIGKILL);
  EXPECT_EQ(waitpid(sleeper, nullptr, 0), sleeper);
}

}  // namespace
}  // namespace ferry
