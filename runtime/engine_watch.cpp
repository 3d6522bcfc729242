#include "runtime/engine_watch.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "comm/failure_latch.h"

namespace ferry {
namespace {

using Activity = Progress::Activity;

constexpr std::chrono::milliseconds kCpuTick{1};  // of the engine's thread on a core: it moves

std::string in_seconds(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return text.data();
}

std::string describe(const Progress::Sight& sight) {
  switch (sight.activity) {
    case Activity::kElsewhere: return "it is not running";
    case Activity::kIdle: return "it is idle and does not wake up";
    case Activity::kComputing: return "it is computing, but nothing moves";
    case Activity::kPosting: return "it is stuck in the transport, posting the " + ferry::describe(sight.op);
    case Activity::kAwaiting: return "it waits for the " + ferry::describe(sight.op);
  }
  return "";
}

}  // namespace

bool ProgressRule::has_moved(const Progress::Sight& sight, uint64_t work) const {
  if (sight.num_marks != last_sight_.num_marks || sight.activity == Activity::kElsewhere) return true;
  return sight.activity == Activity::kComputing && (work != last_work_ || sight.cpu_time - last_sight_.cpu_time >= kCpuTick);
}

std::chrono::nanoseconds ProgressRule::allowance(const Progress::Sight& sight) const {
  if (sight.activity != Activity::kAwaiting) return std::min<std::chrono::nanoseconds>(kSlack, peer_timeout_);
  return sight.usual ? std::min(kSlack + kUsualFactor * *sight.usual, peer_timeout_) : peer_timeout_;
}

ProgressRule::Verdict ProgressRule::look(Time now, const Progress::Sight& sight, uint64_t work) {
  const bool is_first = !last_look_;
  const auto passed = is_first ? std::chrono::nanoseconds(0) : now - *last_look_;
  const bool moved = is_first || has_moved(sight, work);
  still_ = moved ? std::chrono::nanoseconds(0) : still_ + std::min<std::chrono::nanoseconds>(passed, kLongestLook);
  last_look_ = now;
  last_sight_ = sight;
  last_work_ = work;
  if (still_ >= peer_timeout_ + kGrace) return Verdict::kDead;
  return still_ >= allowance(sight) ? Verdict::kOverdue : Verdict::kGoesOn;
}

EngineWatch::EngineWatch(const Progress& progress, const ThreadPool& pool, std::function<uint64_t()> device_progress,
                         std::chrono::milliseconds peer_timeout, std::function<void(const std::string&)> on_dead, Clock& clock)
    : progress_(progress),
      pool_(pool),
      device_progress_(std::move(device_progress)),
      on_dead_(std::move(on_dead)),
      peer_timeout_s_(std::chrono::duration<double>(peer_timeout).count()),
      clock_(clock),
      rule_(peer_timeout),
      thread_([this] { run(); }) {}

EngineWatch::~EngineWatch() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

std::optional<std::string> EngineWatch::complaint() const {
  const std::scoped_lock lock(mutex_);
  return complaint_;
}

void EngineWatch::set_on_change(OnChange on_change) {
  const std::scoped_lock lock(on_change_mutex_);
  on_change_ = std::move(on_change);
}

void EngineWatch::run() {
  std::unique_lock lock(mutex_);
  while (!clock_.wait_for(lock, stopped_, kPeriod, [this] { return is_stopping_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void EngineWatch::look() {
  const Progress::Sight sight = progress_.look();
  const uint64_t work = pool_.progress() + (device_progress_ ? device_progress_() : 0);
  const ProgressRule::Verdict verdict = rule_.look(clock_.now(), sight, work);
  const bool goes_on = verdict == ProgressRule::Verdict::kGoesOn;
  std::optional<std::string> reason;  // made when it is needed: looking allocates nothing
  if (!goes_on) {
    reason = "the engine has not gone on for " + in_seconds(std::chrono::duration<double>(rule_.still()).count()) + ": " +
             describe(sight);
  }
  if (verdict == ProgressRule::Verdict::kDead) on_dead_(*reason + "; --peer-timeout allows " + in_seconds(peer_timeout_s_));
  bool has_changed = false;
  {
    const std::scoped_lock lock(mutex_);
    has_changed = complaint_.has_value() == goes_on;
    complaint_ = reason;
  }
  const std::scoped_lock lock(on_change_mutex_);
  if (has_changed && on_change_) on_change_(reason);
}

}  // namespace ferry
