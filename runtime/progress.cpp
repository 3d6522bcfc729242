#include "runtime/progress.h"

#include <pthread.h>

#include <algorithm>
#include <bit>

namespace ferry {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kMaxEntries = 256;

int size_of(const AwaitedMessage& message) { return static_cast<int>(std::bit_width(message.bytes)); }

}  // namespace

WaitTimes::WaitTimes() { entries_.reserve(kMaxEntries); }

const WaitTimes::Entry* WaitTimes::find(const AwaitedMessage& message) const {
  const auto it = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.tag == message.tag && entry.size == size_of(message); });
  return it == entries_.end() ? nullptr : &*it;
}

void WaitTimes::learn(const AwaitedMessage& message, nanoseconds took) {
  if (const Entry* found = find(message)) {
    nanoseconds& longest = entries_[static_cast<std::size_t>(found - entries_.data())].longest;
    longest = took > longest ? std::min(took, 2 * longest + kUnit) : std::max(took, longest - longest / 16);
  } else if (entries_.size() < kMaxEntries) {
    entries_.push_back({message.tag, size_of(message), took});
  }
}

std::optional<nanoseconds> WaitTimes::usual(const AwaitedMessage& message) const {
  const Entry* found = find(message);
  return found == nullptr ? std::nullopt : std::optional(found->longest);
}

Progress::Scope::Scope(Progress& progress, Activity activity, AwaitedMessage message)
    : progress_(progress), before_(progress.activity_), message_before_(progress.message_), begun_(Clock::now()) {
  const std::scoped_lock lock(progress_.mutex_);
  if (before_ == Activity::kElsewhere) {
    clockid_t clock{};
    progress_.cpu_clock_.reset();
    if (pthread_getcpuclockid(pthread_self(), &clock) == 0) progress_.cpu_clock_ = clock;
  }
  progress_.activity_ = activity;
  progress_.message_ = message;
  ++progress_.num_marks_;
}

Progress::Scope::~Scope() {
  const std::scoped_lock lock(progress_.mutex_);
  if (progress_.activity_ == Activity::kAwaiting) progress_.wait_times_.learn(progress_.message_, Clock::now() - begun_);
  progress_.activity_ = before_;
  progress_.message_ = message_before_;
  ++progress_.num_marks_;
}

Progress::Sight Progress::look() const {
  const std::scoped_lock lock(mutex_);
  Sight sight{.activity = activity_, .message = message_, .num_marks = num_marks_, .usual = {}};
  if (activity_ == Activity::kAwaiting) sight.usual = wait_times_.usual(message_);
  timespec time{};
  if (cpu_clock_ && clock_gettime(*cpu_clock_, &time) == 0)
    sight.cpu_time = std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
  return sight;
}

}  // namespace ferry
