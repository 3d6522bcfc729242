#include "profiler/run_watch.h"

#include <sys/prctl.h>
#include <unistd.h>

#include "profiler/run_account.h"
#include "profiler/span.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kOffPeriod{100};  // while nothing is recorded

/// When a stop began that was noticed between two looks, `gap` apart. That was during the sleep, after the last sign of life;
/// if there was none, half of the sleep is the best guess.
uint64_t find_stop(uint64_t looked, uint64_t woke, Clock::duration gap) {
  const double slept_share = std::chrono::duration<double>(RunWatch::kPeriod + RunWatch::kSlack) / gap;
  const auto slept = static_cast<uint64_t>(static_cast<double>(woke - looked) * slept_share);
  const uint64_t sign_of_life = recorder().last_end(looked + slept);
  return sign_of_life > looked ? sign_of_life : looked + slept / 2;
}

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
  recorder().register_thread("watch", Recorder::ThreadRole::kWatches);
  prctl(PR_SET_TIMERSLACK, std::chrono::nanoseconds(kSlack).count());
  DelayCounter delay(gettid());
  std::unique_lock lock(mutex_);
  while (!is_leaving_) {
    const bool is_on = is_traced(Zone::kNotRunning);
    const Clock::time_point looked = Clock::now();
    const uint64_t begin = now_ticks();
    leave_.wait_for(lock, is_on ? kPeriod : kOffPeriod);
    const Clock::duration gap = Clock::now() - looked;
    const uint64_t end = now_ticks();
    const std::chrono::nanoseconds core_wait(delay.take_ns());
    if (is_on && gap - core_wait >= kMinGap)
      record_span(Zone::kNotRunning, find_stop(begin, end, gap), end, static_cast<uint32_t>(core_wait.count() / 1000));
    recorder().help_drain();
  }
}

}  // namespace ferry
