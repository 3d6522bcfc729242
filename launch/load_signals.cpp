#include "launch/load_signals.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "runtime/cluster/exit_guard.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kLookPeriod{100};
constexpr int kExitSignal = 128;  // and the signal's number

}  // namespace

LoadSignals::LoadSignals(bool has_other_ranks, Leave leave, Clock& clock)
    : has_other_ranks_(has_other_ranks), leave_(std::move(leave)), clock_(clock), thread_([this] { run(); }) {}

LoadSignals::~LoadSignals() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  news_.notify_all();
  thread_.join();
  if (has_come()) kill(getpid(), signal_);
}

/// Waits for kLookPeriod or the end.
bool LoadSignals::is_over() {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, kLookPeriod, [this] { return is_over_; });
}

void LoadSignals::run() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  constexpr timespec kNoTime{};
  while (!is_over()) {
    if (const int signal = sigtimedwait(&set, nullptr, &kNoTime); signal > 0) take(signal);
  }
}

void LoadSignals::take(int signal) {
  if (!has_other_ranks_) return leave_(0);
  const Clock::Time now = clock_.now();
  if (since_ && now - *since_ >= kSecondThought) return leave_(kExitSignal + signal);
  if (since_) return;
  since_ = now;
  signal_ = signal;
  std::fprintf(stderr, "ferry: asked to stop: stops in order when the weights are read; another signal ends it at once\n");
}

void LoadSignals::end_process(int exit_code) { exit_now(exit_code, "ferry: stops before the weights are read"); }

}  // namespace ferry
