#include "profiler/run_watch.h"

#include <sys/prctl.h>
#include <unistd.h>

#include "profiler/run_account.h"
#include "profiler/span.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kOffPeriod{100};  // while nothing is recorded

}  // namespace

/// A stop that was noticed began during the sleep, after the last sign of life. If there was none, half of the sleep is the
/// best guess.
std::optional<uint64_t> find_stop(const WatchLook& look, const std::function<uint64_t(uint64_t limit)>& last_end) {
  if (look.gap - look.core_wait < RunWatch::kMinGap) return std::nullopt;
  const double slept_share = std::chrono::duration<double>(RunWatch::kPeriod + RunWatch::kSlack) / look.gap;
  const auto slept = static_cast<uint64_t>(static_cast<double>(look.woke - look.looked) * slept_share);
  const uint64_t sign_of_life = last_end(look.looked + slept);
  return sign_of_life > look.looked ? sign_of_life : look.looked + slept / 2;
}

RunWatch::RunWatch(Clock& clock) : clock_(clock), thread_([this] { run(); }) {}

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
    const Clock::Time looked = clock_.now();
    WatchLook look{.looked = now_ticks()};
    clock_.wait_until(lock, leave_, looked + (is_on ? kPeriod : kOffPeriod));
    look.gap = clock_.now() - looked;
    look.woke = now_ticks();
    look.core_wait = std::chrono::nanoseconds(delay.take_ns());
    const auto last_end = [](uint64_t limit) { return recorder().last_end(limit); };
    if (const std::optional<uint64_t> begin = is_on ? find_stop(look, last_end) : std::nullopt)
      record_span(Zone::kNotRunning, *begin, look.woke, static_cast<uint32_t>(look.core_wait.count() / 1000));
    recorder().help_drain();
  }
}

}  // namespace ferry
