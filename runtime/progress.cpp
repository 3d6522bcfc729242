#include "runtime/progress.h"

#include <pthread.h>

#include <algorithm>
#include <bit>

namespace ferry {

using std::chrono::nanoseconds;
using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kMaxEntries = 256;

int size_of(const OpInfo& op) { return static_cast<int>(std::bit_width(op.bytes)); }

}  // namespace

WaitTimes::WaitTimes() { entries_.reserve(kMaxEntries); }

const WaitTimes::Entry* WaitTimes::find(const OpInfo& op) const {
  const auto it =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.tag == op.tag && entry.size == size_of(op); });
  return it == entries_.end() ? nullptr : &*it;
}

void WaitTimes::learn(const OpInfo& op, nanoseconds took) {
  if (const Entry* found = find(op)) {
    nanoseconds& longest = entries_[static_cast<std::size_t>(found - entries_.data())].longest;
    longest = took > longest ? std::min(took, 2 * longest + kUnit) : std::max(took, longest - longest / 16);
  } else if (entries_.size() < kMaxEntries) {
    entries_.push_back({op.tag, size_of(op), took});
  }
}

std::optional<nanoseconds> WaitTimes::usual(const OpInfo& op) const {
  const Entry* found = find(op);
  return found == nullptr ? std::nullopt : std::optional(found->longest);
}

Progress::Scope::Scope(Progress& progress, Activity activity, const OpInfo& op)
    : progress_(progress),
      before_(progress.activity_),
      op_before_(progress.op_),
      begun_(activity == Activity::kAwaiting ? SteadyClock::now() : SteadyClock::time_point()) {
  const std::scoped_lock lock(progress_.mutex_);
  if (before_ == Activity::kElsewhere) {
    clockid_t clock{};
    progress_.cpu_clock_.reset();
    if (pthread_getcpuclockid(pthread_self(), &clock) == 0) progress_.cpu_clock_ = clock;
  }
  progress_.activity_ = activity;
  progress_.op_ = op;
  ++progress_.num_marks_;
}

Progress::Scope::~Scope() {
  const std::scoped_lock lock(progress_.mutex_);
  if (progress_.activity_ == Activity::kAwaiting) progress_.wait_times_.learn(progress_.op_, SteadyClock::now() - begun_);
  progress_.activity_ = before_;
  progress_.op_ = op_before_;
  ++progress_.num_marks_;
}

Progress::Sight Progress::look() const {
  const std::scoped_lock lock(mutex_);
  Sight sight{.activity = activity_, .op = op_, .num_marks = num_marks_, .usual = {}};
  if (activity_ == Activity::kAwaiting) sight.usual = wait_times_.usual(op_);
  timespec time{};
  if (cpu_clock_ && clock_gettime(*cpu_clock_, &time) == 0)
    sight.cpu_time = std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
  return sight;
}

}  // namespace ferry
