#include "launch/load_signals.h"

#include <chrono>
#include <ctime>
#include <utility>

#include "runtime/cluster/exit_guard.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kLookPeriod{100};

}  // namespace

LoadSignals::LoadSignals(Leave leave) : leave_(std::move(leave)), thread_([this] { run(); }) {}

LoadSignals::~LoadSignals() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  news_.notify_all();
  thread_.join();
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
    if (const int signal = sigtimedwait(&set, nullptr, &kNoTime); signal > 0) leave_(signal);
  }
}

void LoadSignals::end_process(int signal) {
  constexpr int kExitSignal = 128;
  exit_now(kExitSignal + signal, "ferry: asked to leave while it loads: leaves at once");
}

}  // namespace ferry
