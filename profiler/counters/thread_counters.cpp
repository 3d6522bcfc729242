#include "profiler/counters/thread_counters.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace ferry {
namespace {

std::size_t index_of(Counter counter) { return static_cast<std::size_t>(counter); }

FileDescriptor open_of_thread(int64_t tid, const char* file) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/" + file;
  return FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

/// Parses the number at the front of `text` and what separates it from the next one; kNotCounted if there is none.
uint64_t take_number(std::string_view& text) {
  uint64_t number = kNotCounted;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return kNotCounted;
  text.remove_prefix(std::min(text.size(), static_cast<std::size_t>(end - text.data()) + 1));
  return number;
}

const CounterSource* find_source(const PerfGroup& group, Counter counter) {
  const auto found = std::ranges::find(group.sources(), counter, &CounterSource::counter);
  return found == group.sources().end() ? nullptr : &*found;
}

bool counts(const PerfGroup& group, Counter counter) {
  const CounterSource* source = find_source(group, counter);
  return source != nullptr && !source->source.empty();
}

std::span<const PerfEvent> events_if(ThreadCounters::Perf perf, std::span<const PerfEvent> events) {
  return perf == ThreadCounters::Perf::kTried ? events : events.first(0);
}

}  // namespace

ThreadCounters::ThreadCounters(int64_t tid, uint64_t now, Perf perf)
    : tid_(tid),
      hardware_(events_if(perf, hardware_events()), tid),
      software_(events_if(perf, software_events()), tid),
      schedstat_(open_of_thread(tid, "schedstat")),
      stat_(counts(software_, Counter::kMinorFaults) ? FileDescriptor(-1) : open_of_thread(tid, "stat")),
      since_(now),
      last_(read()) {}

std::vector<CounterSource> ThreadCounters::sources() const {
  std::vector<CounterSource> sources = hardware_.sources();
  const auto kernel = [&](Counter counter, const char* file, bool is_there) {
    if (const CounterSource* by_perf = find_source(software_, counter); by_perf != nullptr && !by_perf->source.empty()) {
      sources.push_back(*by_perf);
    } else if (is_there) {
      sources.push_back({counter, file, ""});
    } else {
      sources.push_back({counter, "", by_perf == nullptr ? "the kernel keeps no such statistics" : by_perf->absent});
    }
  };
  const bool has_schedule = last_.kernel[index_of(Counter::kTaskClock)] != kNotCounted;
  kernel(Counter::kTaskClock, "schedstat", has_schedule);
  kernel(Counter::kMinorFaults, "stat", stat_.get() >= 0);
  kernel(Counter::kMajorFaults, "stat", stat_.get() >= 0);
  kernel(Counter::kContextSwitches, "schedstat", has_schedule);
  kernel(Counter::kMigrations, "", false);
  kernel(Counter::kRunQueueDelay, "schedstat", has_schedule);
  return sources;
}

/// Time on a core, time in a run queue, and how often the thread came to a core.
void ThreadCounters::read_schedstat(CounterValues& values) const {
  char buffer[96];
  const ssize_t size = schedstat_.get() < 0 ? -1 : pread(schedstat_.get(), buffer, sizeof buffer, 0);
  if (size <= 0) return;
  std::string_view text(buffer, static_cast<std::size_t>(size));
  values[index_of(Counter::kTaskClock)] = take_number(text);
  values[index_of(Counter::kRunQueueDelay)] = take_number(text);
  values[index_of(Counter::kContextSwitches)] = take_number(text);
}

/// Faults are the 10th and the 12th field, behind a name in brackets that may hold anything (proc(5)).
void ThreadCounters::read_stat(CounterValues& values) const {
  char buffer[1024];
  const ssize_t size = stat_.get() < 0 ? -1 : pread(stat_.get(), buffer, sizeof buffer, 0);
  if (size <= 0) return;
  std::string_view text(buffer, static_cast<std::size_t>(size));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return;
  text.remove_prefix(name_end);
  for (int space = 0; space < 8; ++space) {
    const std::size_t at = text.find(' ');
    if (at == std::string_view::npos) return;
    text.remove_prefix(at + 1);
  }
  values[index_of(Counter::kMinorFaults)] = take_number(text);
  take_number(text);  // of children
  values[index_of(Counter::kMajorFaults)] = take_number(text);
}

ThreadCounters::Standing ThreadCounters::read() const {
  Standing standing{hardware_.read(), software_.read(), {}};
  standing.kernel.fill(kNotCounted);
  read_schedstat(standing.kernel);
  read_stat(standing.kernel);
  return standing;
}

CounterReading ThreadCounters::take(uint64_t now) {
  const Standing standing = read();
  CounterReading reading{.begin = std::exchange(since_, now), .end = now, .tid = static_cast<int32_t>(tid_)};
  const CounterValues hardware = count_between(last_.hardware, standing.hardware, reading.is_scaled);
  const CounterValues software = count_between(last_.software, standing.software, reading.is_scaled);
  for (std::size_t c = 0; c < kNumCounters; ++c) {
    const uint64_t before = last_.kernel[c], after = standing.kernel[c];
    const bool is_known = before != kNotCounted && after != kNotCounted && after >= before;
    reading.values[c] = is_known ? after - before : kNotCounted;
    if (hardware[c] != kNotCounted) reading.values[c] = hardware[c];
    if (software[c] != kNotCounted) reading.values[c] = software[c];
  }
  last_ = standing;
  return reading;
}

}  // namespace ferry
