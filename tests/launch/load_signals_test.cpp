#include "launch/load_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

#include "tests/support/eventually.h"

namespace ferry {
namespace {

/// Blocks both signals in this thread and those that it starts.
class LoadSignalsTest : public ::testing::Test {
 protected:
  LoadSignalsTest() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~LoadSignalsTest() override { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  sigset_t set_{}, before_{};
};

TEST_F(LoadSignalsTest, EitherSignalIsToldWhileItLives) {
  std::atomic<int> told{0};
  const LoadSignals signals([&](int signal) { told = signal; });
  for (const int signal : {SIGTERM, SIGINT}) {
    kill(getpid(), signal);
    eventually([&] { return told == signal; }, "the signal");
  }
}

TEST_F(LoadSignalsTest, ALaterOneIsLeftToTheCommand) {
  std::atomic<int> told{0};
  {
    const LoadSignals signals([&](int signal) { told = signal; });
  }
  kill(getpid(), SIGTERM);
  const timespec long_enough{.tv_sec = 600, .tv_nsec = 0};
  EXPECT_EQ(sigtimedwait(&set_, nullptr, &long_enough), SIGTERM);
  EXPECT_EQ(told, 0);
}

TEST_F(LoadSignalsTest, EndsTheProcessWithTheSignalsNumber) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto be_told = [] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    const LoadSignals signals;
    kill(getpid(), SIGTERM);
    sleep(600);
  };
  EXPECT_EXIT(be_told(), ::testing::ExitedWithCode(128 + SIGTERM), "asked to leave while it loads");
}

}  // namespace
}  // namespace ferry
