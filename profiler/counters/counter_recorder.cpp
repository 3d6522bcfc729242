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

void add_if_unknown(const CounterSource& source, std::vector<CounterSource>& known) {
  if (std::ranges::find(known, source.counter, &CounterSource::counter) == known.end()) known.push_back(source);
}

std::size_t most_threads() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return static_cast<std::size_t>(std::min<rlim_t>(files.rlim_cur, 1 << 20)) / 4 / ThreadCounters::kMostFiles;
}

}  // namespace

void CounterRecorder::begin(std::span<const int64_t> tids, std::size_t max_readings) {
  const std::scoped_lock lock(mutex_);
  close();
  max_readings_ = std::min(max_readings, kMaxCounterReadings);
  capture_.readings.reserve(max_readings_);
  max_threads_ = most_threads();
  waiting_.assign(tids.rbegin(), tids.rend());
  is_running_ = true;
  ++num_begun_;
}

bool CounterRecorder::open_next(uint64_t now) {
  std::unique_lock lock(mutex_);
  if (!is_running_ || is_counting() || opening_ != 0) return false;
  if (!waiting_.empty()) return open_thread(lock, now);
  open_machine(lock, now);
  return false;
}

/// The files are opened without the lock, for it is the stepping thread's, too. Under mutex_. False if the counting has ended.
bool CounterRecorder::open_thread(std::unique_lock<std::mutex>& lock, uint64_t now) {
  const int64_t tid = waiting_.back();
  waiting_.pop_back();
  if (!has_room_for_thread()) return true;
  const uint64_t number = num_begun_;
  opening_ = tid;
  lock.unlock();
  ThreadCounters counters(tid, now);
  lock.lock();
  if (!is_running_ || number != num_begun_) return false;
  if (opening_ != tid) return true;  // the thread has ended meanwhile
  opening_ = 0;
  add_counters(std::move(counters));
  return true;
}

/// Likewise.
void CounterRecorder::open_machine(std::unique_lock<std::mutex>& lock, uint64_t now) {
  const uint64_t number = num_begun_;
  lock.unlock();
  auto machine = std::make_unique<MachineCounters>("/", now);
  lock.lock();
  if (!is_running_ || number != num_begun_) return;
  machine_ = std::move(machine);
  merge_sources(machine_->sources(), capture_.sources);
  due_ = SteadyClock::now();
  is_counting_.store(true, std::memory_order_relaxed);
}

void CounterRecorder::add_thread(int64_t tid, uint64_t now) {
  const std::scoped_lock lock(mutex_);
  if (is_running_ && has_room_for_thread()) add_counters(ThreadCounters(tid, now));
}

/// Under mutex_. False if it is left out.
bool CounterRecorder::has_room_for_thread() {
  if (threads_.size() < max_threads_) return true;
  ++capture_.num_threads_left_out;
  return false;
}

/// Under mutex_.
void CounterRecorder::add_counters(ThreadCounters counters) {
  merge_sources(counters.sources(), capture_.sources);
  threads_.push_back(std::move(counters));
}

void CounterRecorder::retire_thread(int64_t tid, uint64_t now) {
  const std::scoped_lock lock(mutex_);
  if (!is_running_) return;
  if (opening_ == tid) opening_ = 0;
  std::erase(waiting_, tid);
  for (ThreadCounters& thread : threads_) {
    if (thread.tid() == tid) keep(thread.take(now));
  }
  std::erase_if(threads_, [tid](const ThreadCounters& thread) { return thread.tid() == tid; });
}

void CounterRecorder::read_threads(uint32_t step, uint64_t now) {
  if (!is_counting()) return;
  const SteadyClock::time_point begin = SteadyClock::now();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !machine_ || begin < due_) return;
  read_all_threads(step, now);
  due_ = SteadyClock::now();
  due_ += kShare * std::min<SteadyClock::duration>(due_ - begin, threads_.size() * std::chrono::microseconds(50));
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
  const std::scoped_lock lock(mutex_);
  if (!is_running_) return {};
  read_all_threads(kNoStep, now);
  if (machine_) keep(machine_->take(now));
  for (std::size_t c = 0; c < kNumToldByAll; ++c)
    add_if_unknown({static_cast<Counter>(c), "", "the capture was over before it was opened"}, capture_.sources);
  CounterCapture ended = std::exchange(capture_, {});
  close();
  return ended;
}

void CounterRecorder::discard() noexcept {
  const std::scoped_lock lock(mutex_);
  close();
}

/// Under mutex_.
void CounterRecorder::close() noexcept {
  is_counting_.store(false, std::memory_order_relaxed);
  is_running_ = false;
  opening_ = 0;
  waiting_.clear();
  threads_.clear();
  machine_.reset();
  capture_ = {};
}

}  // namespace ferry
