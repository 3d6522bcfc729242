#include "profiler/recorder.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <new>
#include <utility>

#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/base/peak_memory.h"

namespace ferry {

namespace detail {
thread_local constinit TraceBuffer* trace_buffer = nullptr;
thread_local constinit const Span* open_span = nullptr;
thread_local constinit uint64_t chain_end = kNoChain;
}  // namespace detail

namespace {

constexpr std::chrono::nanoseconds kDrainSlack = std::chrono::milliseconds(5);  // it wakes with the scheduler's tick
constexpr int64_t kSectionShare = 8;  // of a capture's bound, for counters and for memory each

/// Ends a thread's registration with the thread.
struct Registration {
  Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    if (detail::trace_buffer != nullptr) recorder().retire_thread(std::exchange(detail::trace_buffer, nullptr));
  }
};

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

rusage usage() {
  rusage now{};
  getrusage(RUSAGE_SELF, &now);
  return now;
}

/// Ticks that one of many spans takes: the best of a few rounds, in which nobody else had the core.
template <class Body>
double ticks_each(Body&& body) {
  constexpr int kRounds = 4, kSpans = 1024;
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t begin = now_ticks();
    for (int i = 0; i < kSpans; ++i) body();
    best = std::min(best, now_ticks() - begin);
  }
  return static_cast<double>(best) / kSpans;
}

struct SpanCost {
  double alone = 0, chained = 0;  // ticks
};

/// What spans cost here and now, in a ring of their own.
SpanCost measure_span_cost() {
  TraceBuffer ring(1024);
  const double alone = ticks_each([&] {
    const uint64_t begin = now_ticks();
    push_span(ring, Zone::kStep, begin, now_ticks(), 0, 0);
  });
  uint64_t before = now_ticks();
  const double chained = ticks_each([&] {
    const uint64_t end = now_ticks();
    push_span(ring, Zone::kStep, std::exchange(before, end), end, 0, 0);
  });
  return {alone, chained};
}

/// False if there is no memory.
bool add_chunk(std::vector<std::vector<SpanRecord>>& chunks, std::size_t num_records) try {
  std::vector<SpanRecord> chunk;
  chunk.reserve(num_records);
  chunks.push_back(std::move(chunk));
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace

std::optional<SpanRecord> open_operator() {
  for (const Span* span = detail::open_span; span != nullptr; span = span->outer_) {
    if (zone_info(span->zone_).kind == ZoneKind::kCompute)
      return make_span_record(span->zone_, span->begin_, span->begin_, span->a_, span->b_);
  }
  return std::nullopt;
}

std::optional<Zone> open_zone() {
  const Span* span = detail::open_span;
  if (span == nullptr || static_cast<int>(span->zone_) >= kNumZones) return std::nullopt;
  return span->zone_;
}

std::string kernel_boot_id() {
  static const std::string known = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id;
  }();
  return known;
}

Recorder& recorder() {
  static Recorder instance;
  return instance;
}

Recorder::~Recorder() {
  detail::trace_level = static_cast<int8_t>(TraceLevel::kOff);
  discard();
}

void Recorder::register_thread(const std::string& name, ThreadRole role) {
  thread_local Registration registration;
  const std::scoped_lock lock(mutex_);
  if (detail::trace_buffer == nullptr) {
    threads_.push_back(std::make_unique<ThreadTrace>());
    threads_.back()->tid = gettid();
    threads_.back()->role = role;
    threads_.back()->stack = own_stack();
    threads_.back()->buffer = std::make_unique<TraceBuffer>(kRingRecords);
    if (sampler_) sampler_->add(threads_.back()->stack);
    detail::trace_buffer = threads_.back()->buffer.get();
    num_registrations_.fetch_add(1, std::memory_order_release);
    if (role == ThreadRole::kWorks) counters_.add_thread(threads_.back()->tid, now_ticks());
  }
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (thread->buffer.get() == detail::trace_buffer) thread->name = name;
  }
}

TraceBuffer* Recorder::register_device(const DeviceFacts& device) {
  const std::scoped_lock lock(mutex_);
  threads_.push_back(std::make_unique<ThreadTrace>());
  ThreadTrace& trace = *threads_.back();
  trace.name = device.name;
  trace.device = device;
  trace.buffer = std::make_unique<TraceBuffer>(kRingRecords);
  return trace.buffer.get();
}

void Recorder::describe_device(const TraceBuffer* buffer, const DeviceFacts& device) {
  const std::scoped_lock lock(mutex_);
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (thread->buffer.get() == buffer) thread->device = device;
  }
}

void Recorder::retire_thread(const TraceBuffer* buffer) {
  const std::scoped_lock lock(mutex_);
  if (is_capturing_) drain();
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (thread->buffer.get() != buffer) continue;
    thread->is_retired = true;
    if (sampler_) sampler_->remove(thread->stack);
    if (!thread->device) counters_.retire_thread(thread->tid, now_ticks());
    if (thread->stack.slot != nullptr) thread->stack.slot->store(nullptr);
  }
  if (!is_capturing_) std::erase_if(threads_, [](const auto& thread) { return thread->is_retired; });
}

void Recorder::set_idle_level(TraceLevel level) {
  const std::scoped_lock lock(mutex_);
  idle_level_ = level;
  apply_level();
}

void Recorder::set_step_level(TraceLevel level) {
  const std::scoped_lock lock(mutex_);
  step_level_ = level;
  apply_level();
}

/// Under mutex_.
void Recorder::apply_level() {
  const TraceLevel asked = std::max(idle_level_, step_level_);
  detail::trace_level = static_cast<int8_t>(is_capturing_ ? std::max(options_.level, asked) : asked);
}

void Recorder::start(const CaptureOptions& options) {
  const std::scoped_lock lock(mutex_);
  if (is_capturing_) throw Error(ErrorCode::kFailedPrecondition, "a capture is running already; stop it first");
  options_ = options;
  held_bytes_ = 0;
  has_help_ = false;
  preemptions_at_begin_ = usage().ru_nivcsw;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    thread->next = thread->buffer->num_written();
    thread->num_lost = 0;
    thread->chunks.clear();
  }
  drained_.reserve(kRingRecords);
  no_sampler_ = options.level >= TraceLevel::kThreads ? "the capture was over before stacks were sampled" : "";
  try {
    begin_sections();
    drainer_ = std::thread(
        [this, number = ++num_captures_] { run_drain(number); });  // waits for the lock; from here on nothing throws
  } catch (...) {
    counters_.discard();
    memory_.discard();
    throw;
  }
  is_capturing_ = true;
  begin_ = now_ticks();
  apply_level();
}

/// Throws std::bad_alloc. Under mutex_.
void Recorder::begin_sections() {
  const auto room = static_cast<std::size_t>(options_.max_bytes / kSectionShare);
  memory_.begin(room / sizeof(MemorySample));
  if (options_.level < TraceLevel::kOperators) return;
  std::vector<int64_t> tids;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (!thread->is_retired && !thread->device && thread->role == ThreadRole::kWorks) tids.push_back(thread->tid);
  }
  counters_.begin(tids, room / sizeof(CounterReading));
}

/// Under mutex_.
void Recorder::note_span_cost(double alone_ticks, double chained_ticks) {
  const double ns_per_tick = calibration_.line().ns_per_tick;
  span_cost_ns_ = alone_ticks * ns_per_tick;
  chained_span_cost_ns_ = chained_ticks * ns_per_tick;
}

/// Samples the stacks of all threads from here on. To learn what the process has mapped takes milliseconds, for which no step
/// is to wait. Under mutex_, which it lets go meanwhile.
void Recorder::sample_threads(std::unique_lock<std::mutex>& lock, uint64_t number) try {
  lock.unlock();
  auto sampler = std::make_unique<StackSampler>();
  lock.lock();
  if (!runs(number)) return;
  sampler_ = std::move(sampler);                       // threads that come from here on add themselves
  for (std::size_t t = 0; t < threads_.size(); ++t) {  // while a capture runs, none of them goes
    if (!threads_[t]->device && !threads_[t]->is_retired) sampler_->add(threads_[t]->stack);
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    if (!runs(number)) return;
  }
} catch (const std::bad_alloc&) {
  if (!lock.owns_lock()) lock.lock();
  if (!runs(number)) return;
  sampler_.reset();
  no_sampler_ = "memory ran out";
}

RankCapture Recorder::stop() {
  std::thread drainer;
  RankCapture capture;
  std::exception_ptr failure;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_capturing_) throw Error(ErrorCode::kFailedPrecondition, "no capture is running; start one first");
    try {
      capture = collect();
    } catch (...) {  // memory ran out
      failure = std::current_exception();
    }
    drainer = end_capture();
  }
  stopped_.notify_all();
  drainer.join();
  if (failure) std::rethrow_exception(failure);
  return capture;
}

void Recorder::discard() noexcept {
  std::thread drainer;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_capturing_) return;
    drainer = end_capture();
  }
  stopped_.notify_all();
  drainer.join();
}

/// The capture until now, moved out of the recorder's memory. Under mutex_.
RankCapture Recorder::collect() {
  detail::trace_level = static_cast<int8_t>(std::max(idle_level_, step_level_));
  if (span_cost_ns_ == 0) {  // the first capture of all, and it ends before the recorder's thread had a core
    const SpanCost cost = measure_span_cost();
    note_span_cost(cost.alone, cost.chained);
  }
  RankCapture capture = describe();
  capture.begin = begin_;
  capture.end = now_ticks();
  drain();
  capture.counters = counters_.end(capture.end);
  capture.memory = memory_.end();
  if (sampler_) {
    capture.stacks = sampler_->finish();
  } else {
    capture.stacks.absent = no_sampler_;
  }
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    ThreadCapture kept = describe(*thread);
    kept.num_lost = thread->num_lost;
    std::size_t num_records = 0;
    for (const auto& chunk : thread->chunks) num_records += chunk.size();
    kept.records.reserve(num_records);
    for (auto& chunk : thread->chunks) {
      kept.records.insert(kept.records.end(), chunk.begin(), chunk.end());
      std::vector<SpanRecord>().swap(chunk);
    }
    // A thread that was interrupted while it wrote a span may have come in just now with an old one.
    std::erase_if(kept.records, [&](const SpanRecord& record) { return record.end < begin_; });
    capture.threads.push_back(std::move(kept));
  }
  return capture;
}

/// From here on none runs. Under mutex_; the caller wakes the thread that is returned and joins it without the lock.
std::thread Recorder::end_capture() noexcept {
  is_capturing_ = false;
  apply_level();
  counters_.discard();
  memory_.discard();
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) std::vector<std::vector<SpanRecord>>().swap(thread->chunks);
  std::vector<SpanRecord>().swap(drained_);
  sampler_.reset();
  std::erase_if(threads_, [](const auto& thread) { return thread->is_retired; });
  return std::exchange(drainer_, {});
}

bool Recorder::is_capturing() const {
  const std::scoped_lock lock(mutex_);
  return is_capturing_;
}

int64_t Recorder::captured_bytes() const {
  const std::scoped_lock lock(mutex_);
  return is_capturing_ ? held_bytes_ : 0;
}

bool Recorder::is_sampling() const {
  const std::scoped_lock lock(mutex_);
  return sampler_ != nullptr;
}

RankCapture Recorder::snapshot() const {
  const std::scoped_lock lock(mutex_);
  RankCapture capture = describe();
  capture.end = now_ticks();
  uint64_t held_since = 0, earliest = capture.end;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    ThreadCapture kept = describe(*thread);
    uint64_t num_overwritten = 0;
    thread->buffer->read(0, kept.records, num_overwritten);
    // Records are written as spans end: what ended before the oldest one is gone.
    if (num_overwritten > 0) held_since = std::max(held_since, kept.records.empty() ? capture.end : kept.records.front().end);
    for (const SpanRecord& record : kept.records) earliest = std::min(earliest, record.begin);
    capture.threads.push_back(std::move(kept));
  }
  capture.begin = held_since > 0 ? held_since : earliest;
  capture.memory.samples = {sample_memory(memory_account_, memory_of_trace(), capture.end)};
  return capture;
}

RankCapture Recorder::snapshot_since(uint64_t since) const {
  const std::scoped_lock lock(mutex_);
  RankCapture capture = describe();
  capture.end = now_ticks();
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    ThreadCapture kept = describe(*thread);
    uint64_t num_overwritten = 0;
    thread->buffer->read(thread->buffer->first_since(since), kept.records, num_overwritten);
    capture.begin = std::max(capture.begin, thread->buffer->held_since());
    if (num_overwritten > 0)
      capture.begin = std::max(capture.begin, kept.records.empty() ? capture.end : kept.records.front().end);
    capture.threads.push_back(std::move(kept));
  }
  return capture;
}

std::vector<int64_t> Recorder::thread_ids() const {
  const std::scoped_lock lock(mutex_);
  std::vector<int64_t> ids;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (!thread->is_retired && !thread->device && thread->role == ThreadRole::kWorks) ids.push_back(thread->tid);
  }
  return ids;
}

uint64_t Recorder::last_end(uint64_t limit) const {
  const std::scoped_lock lock(mutex_);
  uint64_t last = 0;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (!thread->device) last = std::max(last, thread->buffer->last_end(limit));
  }
  return last;
}

uint64_t Recorder::read_since(uint64_t since, std::vector<SpanRecord>& records) const {
  const std::scoped_lock lock(mutex_);
  uint64_t held_since = since;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    const TraceBuffer& ring = *thread->buffer;
    const std::size_t num_before = records.size();
    const uint64_t first = ring.first_since(since);
    const bool goes_further = first == 0 || first + ring.capacity() > ring.num_written();
    uint64_t num_lost = 0;
    ring.read(first, records, num_lost);
    if ((num_lost > 0 || !goes_further) && records.size() > num_before)
      held_since = std::max(held_since, records[num_before].end);
  }
  return held_since;
}

uint64_t Recorder::held_since() { return detail::trace_buffer == nullptr ? 0 : detail::trace_buffer->held_since(); }

ThreadCapture Recorder::describe(const ThreadTrace& thread) {
  return {.name = thread.name, .is_device = thread.device.has_value(), .tid = thread.tid, .num_lost = 0, .records = {}};
}

/// Everything but the spans and the time they cover.
RankCapture Recorder::describe() const {
  const rusage now = usage();
  DeviceFacts device;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (thread->device && !thread->is_retired) device = *thread->device;
  }
  return {.host = host_name(),
          .boot_id = kernel_boot_id(),
          .pid = getpid(),
          .ticks = calibration_.line(),
          .span_cost_ns = span_cost_ns_,
          .chained_span_cost_ns = chained_span_cost_ns_,
          .peak_rss_bytes = peak_resident_bytes(),
          .num_preemptions = now.ru_nivcsw - preemptions_at_begin_,
          .device = std::move(device),
          .threads = {}};
}

/// As long as the capture of this number runs.
void Recorder::run_drain(uint64_t number) {
  prctl(PR_SET_TIMERSLACK, kDrainSlack.count());
  const SpanCost cost = measure_span_cost();
  std::unique_lock lock(mutex_);
  note_span_cost(cost.alone, cost.chained);
  if (runs(number) && options_.level >= TraceLevel::kThreads) sample_threads(lock, number);
  for (bool has_opened = true; has_opened && runs(number);) {
    lock.unlock();
    has_opened = counters_.open_next(now_ticks());
    lock.lock();
    if (runs(number)) drain();
  }
  while (runs(number)) {
    if (memory_.is_due(std::chrono::steady_clock::now())) {
      memory_.sample(memory_account_, memory_of_trace(), now_ticks());
      counters_.read_machine(now_ticks());
    }
    const bool is_helped = std::exchange(has_help_, false) && !sampler_;
    stopped_.wait_for(lock, is_helped ? MemoryRecorder::kPeriod : kDrainPeriod);
    if (runs(number)) drain();
  }
}

void Recorder::help_drain() {
  const std::scoped_lock lock(mutex_);
  if (!is_capturing_ || sampler_) return;
  drain();
  has_help_ = true;
}

/// Rings as far as they were written, and what the capture has. Under mutex_.
TraceMemory Recorder::memory_of_trace() const {
  TraceMemory memory;
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    const uint64_t num_touched = std::min<uint64_t>(thread->buffer->num_written(), thread->buffer->capacity());
    memory.resident_bytes += static_cast<int64_t>(num_touched * sizeof(SpanRecord));
    memory.mapped_bytes += static_cast<int64_t>(thread->buffer->capacity() * sizeof(SpanRecord));
  }
  return memory;
}

/// Moves new records from the rings to the capture's memory, as far as it goes. Under mutex_.
void Recorder::drain() {
  if (sampler_) sampler_->drain();
  for (const std::unique_ptr<ThreadTrace>& thread : threads_) {
    if (thread->next == thread->buffer->num_written()) continue;
    drained_.clear();
    thread->next = thread->buffer->read(thread->next, drained_, thread->num_lost);
    thread->num_lost += drained_.size() - keep(*thread, drained_);
  }
}

/// Appends `records` to the thread's chunks as long as there is room; how many it were. Under mutex_.
std::size_t Recorder::keep(ThreadTrace& thread, std::span<const SpanRecord> records) {
  const int64_t room = std::max<int64_t>(options_.max_bytes - held_bytes_, 0) / static_cast<int64_t>(sizeof(SpanRecord));
  std::size_t num_kept = std::min(records.size(), static_cast<std::size_t>(room));
  std::span<const SpanRecord> left = records.first(num_kept);
  while (!left.empty()) {
    if (thread.chunks.empty() || thread.chunks.back().size() == thread.chunks.back().capacity()) {
      if (!add_chunk(thread.chunks, std::min(kChunkRecords, static_cast<std::size_t>(room)))) break;
    }
    std::vector<SpanRecord>& chunk = thread.chunks.back();
    const auto next = left.first(std::min(left.size(), chunk.capacity() - chunk.size()));
    chunk.insert(chunk.end(), next.begin(), next.end());
    left = left.subspan(next.size());
  }
  num_kept -= left.size();
  held_bytes_ += static_cast<int64_t>(num_kept * sizeof(SpanRecord));
  return num_kept;
}

}  // namespace ferry
