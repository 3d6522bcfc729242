#include "profiler/counters/counter_recorder.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

bool counts_anything(const CounterReading& reading) {
  return std::ranges::any_of(reading.values, [](uint64_t value) { return value != kNotCounted; });
}

/// Adds what `sources` say of counters that `known` says nothing of. A counter of several threads is there if one has it.
void merge_sources(const std::vector<CounterSource>& sources, std::vector<CounterSource>& known) {
  for (const CounterSource& source : sources) {
    const auto same = std::ranges::find(known, source.counter, &CounterSource::counter);
    if (same == known.end()) {
      known.push_back(source);
    } else if (same->source.empty()) {
      *same = source;
    }
  }
}

std::size_t most_threads() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return static_cast<std::size_t>(std::min<rlim_t>(files.rlim_cur, 1 << 20)) / 4 / ThreadCounters::kMostFiles;
}

}  // namespace

void CounterRecorder::begin(std::span<const int64_t> tids, std::size_t max_readings, uint64_t now) {
  const std::scoped_lock lock(mutex_);
  threads_.clear();
  capture_ = {};
  max_readings_ = std::min(max_readings, kMaxCounterReadings);
  capture_.readings.reserve(max_readings_);
  max_threads_ = most_threads();
  for (const int64_t tid : tids) count_thread(tid, now);
  machine_.emplace("/", now);
  merge_sources(machine_->sources(), capture_.sources);
  due_ = Clock::now();
  is_counting_.store(true, std::memory_order_relaxed);
}

void CounterRecorder::add_thread(int64_t tid, uint64_t now) {
  if (!is_counting()) return;
  const std::scoped_lock lock(mutex_);
  if (machine_) count_thread(tid, now);
}

/// Under mutex_.
void CounterRecorder::count_thread(int64_t tid, uint64_t now) {
  if (threads_.size() >= max_threads_) {
    ++capture_.num_threads_left_out;
    return;
  }
  threads_.emplace_back(tid, now);
  merge_sources(threads_.back().sources(), capture_.sources);
}

void CounterRecorder::retire_thread(int64_t tid, uint64_t now) {
  if (!is_counting()) return;
  const std::scoped_lock lock(mutex_);
  for (ThreadCounters& thread : threads_) {
    if (thread.tid() == tid) keep(thread.take(now));
  }
  std::erase_if(threads_, [tid](const ThreadCounters& thread) { return thread.tid() == tid; });
}

void CounterRecorder::read_threads(uint32_t step, uint64_t now) {
  if (!is_counting()) return;
  const Clock::time_point begin = Clock::now();
  const std::scoped_lock lock(mutex_);
  if (!machine_ || begin < due_) return;
  read_all_threads(step, now);
  due_ = Clock::now();
  due_ += kShare * std::min<Clock::duration>(due_ - begin, threads_.size() * std::chrono::microseconds(50));
}

void CounterRecorder::read_all_threads(uint32_t step, uint64_t now) {
  for (ThreadCounters& thread : threads_) {
    CounterReading reading = thread.take(now);
    reading.step = step;
    keep(reading);
  }
}

void CounterRecorder::read_machine(uint64_t now) {
  if (!is_counting()) return;
  const std::scoped_lock lock(mutex_);
  if (machine_) keep(machine_->take(now));
}

void CounterRecorder::add(std::span<const CounterReading> readings, uint32_t step) {
  const std::scoped_lock lock(mutex_);
  if (!machine_) return;
  for (CounterReading reading : readings) {
    reading.step = step;
    keep(reading);
  }
}

/// Under mutex_.
void CounterRecorder::keep(const CounterReading& reading) {
  if (!counts_anything(reading)) return;
  if (capture_.readings.size() < max_readings_) {
    capture_.readings.push_back(reading);
  } else {
    ++capture_.num_lost;
  }
}

CounterCapture CounterRecorder::end(uint64_t now) {
  is_counting_.store(false, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  if (machine_) {
    read_all_threads(kNoStep, now);
    keep(machine_->take(now));
  }
  threads_.clear();
  machine_.reset();
  return std::exchange(capture_, {});
}

void CounterRecorder::discard() noexcept {
  is_counting_.store(false, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  threads_.clear();
  machine_.reset();
  capture_ = {};
}

}  // namespace ferry
