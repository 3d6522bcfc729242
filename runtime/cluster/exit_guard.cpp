#include "runtime/cluster/exit_guard.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ferry {

void exit_now(int exit_code, std::string_view line, std::chrono::seconds write_out) {
  signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  alarm(static_cast<unsigned>(write_out.count()));
  if (!line.empty()) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

ExitGuard::~ExitGuard() { leave(); }

void ExitGuard::end_within(std::chrono::milliseconds limit, const std::string& line) {
  const std::scoped_lock lock(mutex_);
  if (has_left_ || thread_.joinable()) return;
  thread_ = std::thread([this, limit, line] {
    std::unique_lock guard(mutex_);
    if (left_.wait_for(guard, limit, [this] { return has_left_; })) return;
    exit_now(EXIT_FAILURE, line);
  });
}

void ExitGuard::leave() {
  std::thread ended;
  {
    const std::scoped_lock lock(mutex_);
    has_left_ = true;
    ended = std::move(thread_);
  }
  left_.notify_all();
  if (ended.joinable()) ended.join();
}

}  // namespace ferry
