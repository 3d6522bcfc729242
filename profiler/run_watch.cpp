#include "profiler/run_watch.h"

#include <unistd.h>

#include "profiler/run_account.h"
#include "profiler/span.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kOffPeriod{100};  // while nothing is recorded

}  // namespace

RunWatch::RunWatch() : thread_([this] { run(); }) {}

RunWatch::~RunWatch() {
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
  }
  leave_.notify_all();
  thread_.join();
}

void RunWatch::run() {
  recorder().register_thread("watch");
  DelayCounter delay(gettid());
  std::unique_lock lock(mutex_);
  while (!is_leaving_) {
    const bool is_on = is_traced(Zone::kNotRunning);
    const Clock::time_point looked = Clock::now();
    const uint64_t begin = now_ticks();
    leave_.wait_for(lock, is_on ? kPeriod : kOffPeriod);
    const Clock::duration gap = Clock::now() - looked;
    const uint64_t end = now_ticks();
    const int64_t core_wait_us = delay.take_ns() / 1000;
    if (!is_on || gap < kMinGap) continue;
    // It stopped at any moment of the sleep: half of it is the best guess.
    const double slept_share = 0.5 * std::chrono::duration<double>(kPeriod) / std::chrono::duration<double>(gap);
    record_span(Zone::kNotRunning, begin + static_cast<uint64_t>(static_cast<double>(end - begin) * slept_share), end,
                static_cast<uint32_t>(core_wait_us));
  }
}

}  // namespace ferry
