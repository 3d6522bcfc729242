#include "launch/load_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"

namespace ferry {
namespace {

sigset_t block_both() {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  return before;
}

class LoadSignalsTest : public ::testing::Test {
 protected:
  ~LoadSignalsTest() override { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// The signal that is left to the command.
  static int left_to_command() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    const timespec long_enough{.tv_sec = 600, .tv_nsec = 0};
    return sigtimedwait(&set, nullptr, &long_enough);
  }

  const sigset_t before_ = block_both();
  ManualClock clock_;
  std::atomic<int> exit_code_{-1};
  const LoadSignals::Leave leave_ = [this](int exit_code) { exit_code_ = exit_code; };
};

TEST_F(LoadSignalsTest, AProcessAloneEndsAtOnce) {
  for (const int signal : {SIGTERM, SIGINT}) {
    exit_code_ = -1;
    const LoadSignals signals(/*has_other_ranks=*/false, leave_, clock_);
    kill(getpid(), signal);
    eventually([&] { return exit_code_ == 0; }, "the end");
  }
}

TEST_F(LoadSignalsTest, OneOfSeveralRanksLeavesTheSignalToTheCommand) {
  {
    const LoadSignals signals(/*has_other_ranks=*/true, leave_, clock_);
    kill(getpid(), SIGINT);
    eventually([&] { return signals.has_come(); }, "the signal");
  }
  EXPECT_EQ(left_to_command(), SIGINT);
  EXPECT_EQ(exit_code_, -1);
}

TEST_F(LoadSignalsTest, AFurtherSignalEndsOneOfSeveralRanks) {
  {
    const LoadSignals signals(/*has_other_ranks=*/true, leave_, clock_);
    kill(getpid(), SIGINT);
    eventually([&] { return signals.has_come(); }, "the signal");
    clock_.advance(LoadSignals::kSecondThought);
    kill(getpid(), SIGTERM);
    eventually([&] { return exit_code_ == 128 + SIGTERM; }, "the end");
  }
  EXPECT_EQ(left_to_command(), SIGINT);
}

TEST_F(LoadSignalsTest, ALaterSignalIsTheCommandsAlone) {
  { const LoadSignals signals(/*has_other_ranks=*/true, leave_, clock_); }
  kill(getpid(), SIGTERM);
  EXPECT_EQ(left_to_command(), SIGTERM);
  EXPECT_EQ(exit_code_, -1);
}

TEST(LoadSignals, EndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto be_told = [] {
    block_both();
    const LoadSignals signals(/*has_other_ranks=*/false);
    kill(getpid(), SIGTERM);
    sleep(600);
  };
  EXPECT_EXIT(be_told(), ::testing::ExitedWithCode(0), "stops before the weights are read");
}

}  // namespace
}  // namespace ferry
