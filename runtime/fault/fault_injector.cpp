#include "runtime/fault/fault_injector.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

namespace ferry {
namespace {

using Kind = PlannedFault::Kind;

/// A child wakes this process: it holds none of its descriptors, or links would seem to live when this process has died.
void stop_for(std::chrono::microseconds time) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    close_range(0, ~0U, 0);
    const timespec pause{.tv_sec = time.count() / 1'000'000, .tv_nsec = time.count() % 1'000'000 * 1000};
    nanosleep(&pause, nullptr);
    kill(parent, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
}

}  // namespace

FaultInjector::FaultInjector(const std::vector<PlannedFault>& plan, Rank rank) : start_(std::chrono::steady_clock::now()) {
  for (const PlannedFault& fault : plan) {
    const bool is_own = fault.kind == Kind::kCut ? rank == Rank{0} : fault.rank == rank;
    if (!is_own) continue;
    if (fault.step) {
      by_step_.push_back(fault);
    } else if (fault.time) {
      by_time_.push_back(fault);
    } else {
      happen(fault);
    }
  }
  std::ranges::stable_sort(by_time_, {}, [](const PlannedFault& fault) { return *fault.time; });
  if (!by_time_.empty()) thread_ = std::thread([this] { run(); });
}

FaultInjector::~FaultInjector() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FaultInjector::run() {
  for (const PlannedFault& fault : by_time_) {
    {
      std::unique_lock lock(mutex_);
      if (wake_.wait_until(lock, start_ + *fault.time, [this] { return is_over_; })) return;
    }
    happen(fault);
  }
}

void FaultInjector::begin_step(int64_t step) {
  for (std::size_t i = 0; i < by_step_.size();) {
    if (*by_step_[i].step > step) {
      ++i;
      continue;
    }
    const PlannedFault fault = by_step_[i];
    by_step_.erase(by_step_.begin() + static_cast<std::ptrdiff_t>(i));
    happen(fault);
  }
}

std::chrono::nanoseconds FaultInjector::end_work(std::chrono::nanoseconds time) {
  using std::chrono::nanoseconds;
  nanoseconds more{0};
  {
    const std::scoped_lock lock(mutex_);
    more = delay_ + std::chrono::duration_cast<nanoseconds>(time * (factor_ - 1));
  }
  if (more <= nanoseconds(0)) return nanoseconds(0);
  std::this_thread::sleep_for(more);
  return more;
}

bool FaultInjector::spoils_replies() {
  const std::scoped_lock lock(mutex_);
  return spoils_replies_;
}

std::vector<Rank> FaultInjector::take_cuts() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(cuts_, {});
}

void FaultInjector::happen(const PlannedFault& fault) {
  switch (fault.kind) {
    case Kind::kKill:
      std::fprintf(stderr, "ferry: --fault kills rank %d\n", fault.rank.value);
      kill(getpid(), SIGKILL);
      break;
    case Kind::kStop:
      std::fprintf(stderr, "ferry: --fault stops rank %d for %.1f s\n", fault.rank.value,
                   static_cast<double>(fault.duration.count()) * 1e-6);
      stop_for(fault.duration);
      break;
    case Kind::kCut: {
      std::fprintf(stderr, "ferry: --fault cuts the link with rank %d\n", fault.rank.value);
      const std::scoped_lock lock(mutex_);
      cuts_.push_back(fault.rank);
      break;
    }
    case Kind::kSlow: {
      const std::scoped_lock lock(mutex_);
      factor_ = fault.factor;
      break;
    }
    case Kind::kDelay: {
      const std::scoped_lock lock(mutex_);
      delay_ = fault.duration;
      break;
    }
    case Kind::kNan: {
      std::fprintf(stderr, "ferry: --fault lets rank %d reply with NaN\n", fault.rank.value);
      const std::scoped_lock lock(mutex_);
      spoils_replies_ = true;
      break;
    }
  }
}

}  // namespace ferry
