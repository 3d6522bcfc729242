#include "runtime/cluster/exit_guard.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cluster/loss_notice.h"
#include "tests/support/asleep.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(ExitGuardDeathTest, EndsAProcessThatIsStuck) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto stuck = [] {
    ExitGuard guard;
    guard.end_within(milliseconds(10), "ferry: rank 3 is gone");
    guard.end_within(hours(1), "a later call does not count");
    std::this_thread::sleep_for(hours(1));
  };
  EXPECT_EXIT(stuck(), testing::ExitedWithCode(EXIT_FAILURE), "ferry: rank 3 is gone");
  EXPECT_EXIT(exit_now(7, "", hours(1)), testing::ExitedWithCode(7), "");
  EXPECT_EXIT(exit_now(7, "why", hours(1)), testing::ExitedWithCode(7), "why");
}

/// Keeps stdout, as a write to a pipe does that nobody reads. Once `other` waits for it, the alarm that is set rings at once.
void keep_stdout_and_ring(pid_t other) {
  flockfile(stdout);
  test::await_asleep(other);
  if (alarm(0) == 0) std::_Exit(EXIT_SUCCESS);  // none was set
  kill(getpid(), SIGALRM);
  std::this_thread::sleep_for(hours(1));
}

TEST(ExitGuardDeathTest, EndsAProcessThatIsStuckInAWrite) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto stuck = [] {
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, nullptr);  // as libraries do
    std::thread([self = gettid()] { keep_stdout_and_ring(self); }).detach();
    while (ftrylockfile(stdout) == 0) {
      funlockfile(stdout);
      std::this_thread::yield();
    }
    exit_now(EXIT_FAILURE, "ferry: rank 3 is gone", kTestLimit);
  };
  EXPECT_EXIT(stuck(), testing::KilledBySignal(SIGALRM), "ferry: rank 3 is gone");
}

TEST(ExitGuard, LeavesAProcessThatEndsAlone) {
  ExitGuard unused, guard;
  guard.end_within(hours(1), "never");
  guard.leave();
  guard.end_within(milliseconds(0), "it has left already");
}

TEST(LossNotice, TheFirstLossIsToldOnce) {
  LossNotice losses;
  std::vector<std::string> heard;
  EXPECT_FALSE(losses.wait_for(milliseconds(0)));
  losses.listen([&](const std::string& reason) { heard.push_back(reason); });
  EXPECT_TRUE(losses.report("rank 2: gone"));
  EXPECT_FALSE(losses.report("rank 1: gone too"));
  EXPECT_EQ(heard, std::vector<std::string>{"rank 2: gone"});
  EXPECT_TRUE(losses.wait_for(milliseconds(0)));
}

TEST(LossNotice, ALateListenerHearsOfItAtOnceAndNobodyAfterTheEnd) {
  LossNotice losses;
  int num_calls = 0;
  losses.listen([&](const std::string&) { ++num_calls; });
  losses.listen({});
  losses.report("rank 2: gone");
  EXPECT_EQ(num_calls, 0);
  losses.listen([&](const std::string& reason) { num_calls += reason == "rank 2: gone" ? 1 : 100; });
  EXPECT_EQ(num_calls, 1);
}

}  // namespace
}  // namespace ferry
