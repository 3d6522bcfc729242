#include "profiler/counters/operator_counts.h"

namespace ferry {

namespace detail {
thread_local constinit OperatorCounts* operator_counts = nullptr;
}

namespace {

constexpr int64_t kOwnThread = 0;

/// What the processor counts; else what the kernel does.
PerfGroup open_group() {
  PerfGroup hardware(hardware_events(), kOwnThread);
  return hardware.is_open() ? std::move(hardware) : PerfGroup(software_events(), kOwnThread);
}

}  // namespace

OperatorCounts::OperatorCounts() : group_(open_group()), pages_(group_) {
  by_page_ = pages_.read(last_);
  last_ = read();
  taken_.reserve(kNumZones);
}

PerfReading OperatorCounts::read() const {
  PerfReading reading;
  if (by_page_ && pages_.read(reading)) return reading;
  return group_.read();
}

void OperatorCounts::change(Zone zone) {
  const PerfReading now = read();
  Sum& sum = sums_[static_cast<std::size_t>(zone_)];
  const CounterValues counted = count_between(last_, now, sum.is_scaled);
  for (std::size_t c = 0; c < kNumCounters; ++c) {
    if (!sum.is_used) sum.values[c] = kNotCounted;
    if (counted[c] == kNotCounted) continue;
    sum.values[c] = sum.values[c] == kNotCounted ? counted[c] : sum.values[c] + counted[c];
  }
  sum.is_used = true;
  last_ = now;
  zone_ = zone;
}

const std::vector<CounterReading>& OperatorCounts::take(int32_t tid, uint64_t since, uint64_t now) {
  taken_.clear();
  for (int z = 0; z < kNumZones; ++z) {
    Sum& sum = sums_[static_cast<std::size_t>(z)];
    if (sum.is_used && static_cast<Zone>(z) != Zone::kStep) {
      taken_.push_back({.begin = since,
                        .end = now,
                        .tid = tid,
                        .zone = static_cast<Zone>(z),
                        .is_part = !by_page_,
                        .is_scaled = sum.is_scaled,
                        .values = sum.values});
    }
    sum = {};
  }
  return taken_;
}

}  // namespace ferry
