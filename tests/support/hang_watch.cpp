#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

// Every test program of GoogleTest has this object. It ends a program whose case hangs and names the case, since ctest would
// end the program without a word.

namespace ferry::test {
namespace {

/// Tests give up waiting after kTestLimit by themselves. ctest's own limit for a program is far above this one.
constexpr time_t kMostSeconds = 1800;

std::array<char, 256> running_case{};  // for the handler, which may read memory and write to a file, and little else

void tell_and_end(int) {
  constexpr std::string_view kText = "\nThis case has run for 30 minutes and seems to hang: ";
  (void)!write(STDERR_FILENO, kText.data(), kText.size());
  (void)!write(STDERR_FILENO, running_case.data(), std::strlen(running_case.data()));
  (void)!write(STDERR_FILENO, "\n", 1);
  _exit(1);
}

/// A timer and no thread: tests look at the threads of their process, and some fork.
class HangWatch : public testing::EmptyTestEventListener {
 public:
  HangWatch() {
    struct sigaction action {};
    action.sa_handler = tell_and_end;
    const int signal = SIGRTMAX - 1;
    sigaction(signal, &action, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = signal;
    has_timer_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }

  void OnTestStart(const testing::TestInfo& info) override {
    std::snprintf(running_case.data(), running_case.size(), "%s.%s", info.test_suite_name(), info.name());
    end_after(kMostSeconds);
  }
  void OnTestEnd(const testing::TestInfo&) override { end_after(0); }

 private:
  /// 0: never.
  void end_after(time_t seconds) {
    const itimerspec spec{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_nsec = 0}};
    if (has_timer_) timer_settime(timer_, 0, &spec, nullptr);
  }

  bool has_timer_ = false;
  timer_t timer_{};
};

[[maybe_unused]] const bool is_watched = [] {
  testing::UnitTest::GetInstance()->listeners().Append(std::make_unique<HangWatch>().release());  // it owns them
  return true;
}();

}  // namespace
}  // namespace ferry::test
