#include "profiler/run_account.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "profiler/span.h"

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kMinDelayNs = 10'000;  // waking up takes that long without any rival

}  // namespace

DelayCounter::DelayCounter(int64_t tid) : DelayCounter(tid, "/proc/self/task/" + std::to_string(tid) + "/schedstat") {}

DelayCounter::DelayCounter(int64_t tid, const std::string& schedstat)
    : tid_(tid), file_(open(schedstat.c_str(), O_RDONLY | O_CLOEXEC)) {
  take_ns();
}

DelayCounter::~DelayCounter() {
  if (file_ >= 0) close(file_);
}

DelayCounter::DelayCounter(DelayCounter&& other) noexcept
    : tid_(other.tid_), file_(std::exchange(other.file_, -1)), last_ns_(other.last_ns_), since_(other.since_) {}

int64_t DelayCounter::read_ns() const {
  char text[96];
  const ssize_t size = file_ < 0 ? -1 : pread(file_, text, sizeof text, 0);
  if (size <= 0) return last_ns_;
  const char* end = text + size;
  const char* delay = std::find(static_cast<const char*>(text), end, ' ');  // behind the time on a core
  int64_t delay_ns = last_ns_;
  if (delay != end) std::from_chars(delay + 1, end, delay_ns);
  return delay_ns;
}

int64_t DelayCounter::take_ns() {
  since_ = now_ticks();
  const int64_t now_ns = read_ns();
  return now_ns - std::exchange(last_ns_, now_ns);
}

void RunAccount::record(DelayCounter& counter) {
  const uint64_t since = counter.since();
  const int64_t delay_ns = counter.take_ns();
  if (delay_ns >= kMinDelayNs) record_counted(Zone::kCoreWait, since, delay_ns / 1000, static_cast<uint32_t>(counter.tid()));
}

void RunAccount::record_own() {
  if (!is_traced(Zone::kCoreWait)) return;
  const SteadyClock::time_point begin = SteadyClock::now();
  if (!own_pace_.is_due(begin)) return;
  if (own_.empty()) own_.emplace_back(gettid());
  record(own_.front());
  own_pace_.took(begin, SteadyClock::now(), 1);
}

RunAccount::RunAccount() = default;
RunAccount::~RunAccount() {
  if (operator_counts_ != nullptr && detail::operator_counts == operator_counts_.get()) detail::operator_counts = nullptr;
}

/// A step has ended.
void RunAccount::read_counters() {
  count_operators();
  if (recorder().counters().is_counting())
    recorder().counters().read_threads(static_cast<uint32_t>(check_context().step), now_ticks());
}

/// Hands over what the step's operators counted, and sees that the next one's are counted if they are to be.
void RunAccount::count_operators() {
  const bool is_wanted = recorder().counters().is_counting() && is_traced(Zone::kPoolTask);
  if (!is_wanted) {
    if (operator_counts_ != nullptr) detail::operator_counts = nullptr;
    operator_counts_.reset();
    return;
  }
  const uint64_t now = now_ticks();
  if (operator_counts_ == nullptr) {
    operator_counts_ = std::make_unique<OperatorCounts>();
    detail::operator_counts = operator_counts_->is_open() ? operator_counts_.get() : nullptr;
  } else {
    recorder().counters().add(operator_counts_->take(static_cast<int32_t>(gettid()), operators_since_, now),
                              static_cast<uint32_t>(check_context().step));
  }
  operators_since_ = now;
}

void RunAccount::record_others() {
  read_counters();
  if (!is_traced(Zone::kCoreWait)) return;
  follow_threads();
  const SteadyClock::time_point begin = SteadyClock::now();
  if (!others_pace_.is_due(begin)) return;
  const int layer = std::exchange(check_context().layer, kNoLayer);
  for (DelayCounter& counter : others_) record(counter);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const int64_t before = std::exchange(preemptions_, usage.ru_nivcsw);
  if (before >= 0 && preemptions_ > before) record_value(Zone::kPreemptions, preemptions_ - before);
  check_context().layer = layer;
  others_pace_.took(begin, SteadyClock::now(), others_.size() + 1);
}

/// Counts threads that were registered since the last time, too.
void RunAccount::follow_threads() {
  const uint64_t num_registrations = recorder().num_registrations();
  if (num_registrations == threads_seen_) return;
  threads_seen_ = num_registrations;
  others_.clear();
  for (const int64_t tid : recorder().thread_ids()) {
    if (tid != gettid()) others_.emplace_back(tid);
  }
}

}  // namespace ferry
