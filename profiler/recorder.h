#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "profiler/capture.h"
#include "profiler/counters/counter_recorder.h"
#include "profiler/memory/memory_account.h"
#include "profiler/memory/memory_recorder.h"
#include "profiler/stacks/stack_sampler.h"
#include "profiler/tick_clock.h"
#include "profiler/trace_buffer.h"

namespace ferry {

namespace detail {
/// The level of the moment; below it spans cost one load and a comparison.
inline std::atomic<int8_t> trace_level{static_cast<int8_t>(TraceLevel::kOff)};
/// Of the calling thread; null until it is registered.
extern thread_local constinit TraceBuffer* trace_buffer;
}  // namespace detail

/// What this process records, one for all its threads. Every registered thread has a ring that always holds its latest spans
/// (the flight recorder). While a capture runs, a thread of the recorder's own moves them to memory of a fixed bound, so that
/// a capture can be longer than the rings; what does not fit is counted. Beside the spans it takes up to 64 KiB a thread, the
/// size of one ring, and a quarter of the spans' bound for what counters and memory say. From level
/// kThreads on it samples the threads' stacks, too.
///
///   recorder().register_thread("engine");
///   recorder().start({.level = TraceLevel::kOperators});
///   { const Span span(Zone::kRouter, num_rows); … }
///   const RankCapture capture = recorder().stop();
///
/// Any thread may call any method.
class Recorder {
 public:
  static constexpr std::size_t kRingRecords = std::size_t{1} << 16;   // 2 MiB a thread
  static constexpr std::chrono::milliseconds kDrainPeriod{20};        // a ring holds what a thread records in twice this time
  static constexpr std::size_t kChunkRecords = std::size_t{1} << 11;  // 64 KiB, by which a capture's memory grows

  struct CaptureOptions {
    TraceLevel level = TraceLevel::kOperators;
    int64_t max_bytes = int64_t{16} << 20;  // of spans that a capture may hold
  };

  Recorder() = default;
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// What a thread does for the program. One that only watches it is late without anybody waiting.
  enum class ThreadRole { kWorks, kWatches };
  /// From here to its end the calling thread's spans are recorded, under this name. Again: renames it.
  void register_thread(const std::string& name, ThreadRole role = ThreadRole::kWorks);

  /// A ring for what a device does: not the calling thread's, but written by one thread at a time as well. Until
  /// retire_device().
  TraceBuffer* register_device(const DeviceFacts& device);
  /// What is known of a registered device from now on.
  void describe_device(const TraceBuffer* buffer, const DeviceFacts& device);
  void retire_device(const TraceBuffer* buffer) { retire_thread(buffer); }

  /// What is recorded while no capture runs: kSteps feeds the flight recorder, kOff nothing.
  void set_idle_level(TraceLevel level);
  /// What is recorded at least, whatever else is: of a step that is to be seen in detail. To be called between steps.
  void set_step_level(TraceLevel level);

  /// Begins a capture, which takes the calling thread some microseconds: counters are opened, stacks sampled, and the cost of
  /// a span measured, by the recorder's thread. Throws Error{kFailedPrecondition} if one runs, and what the system throws that
  /// has no memory or no thread for it; then none runs.
  void start(const CaptureOptions& options);
  /// Ends the capture and hands it over; rank, alignment and expert counts are the caller's to fill in. Throws
  /// Error{kFailedPrecondition} if none runs, and std::bad_alloc if there is no memory for it; then it is given up.
  RankCapture stop();
  /// Ends the capture, if one runs, and gives up what it holds.
  void discard() noexcept;
  bool is_capturing() const;
  /// Bytes of spans that the capture which runs has taken out of the rings; 0 if none runs. For tests.
  int64_t captured_bytes() const;
  /// True once a capture samples the stacks of all threads that register from then on. For tests.
  bool is_sampling() const;

  /// Moves what the rings hold to the capture, if one runs that samples no stacks, which takes longer: for a thread that wakes
  /// every kDrainPeriod anyway. The recorder's own sleeps longer as long as somebody does that.
  void help_drain();

  /// What the rings hold now, whether a capture runs or not: from the moment on since which every thread's ring holds
  /// everything. What was overwritten before it is no loss.
  RankCapture snapshot() const;
  /// The same of spans that ended at `since` (ticks) or later alone, which takes no longer than they are many. It begins where
  /// the rings do; at 0 if nothing was overwritten.
  RankCapture snapshot_since(uint64_t since) const;

  /// The system's ids of the threads that are registered and work, and how often one came: a change means new ids.
  std::vector<int64_t> thread_ids() const;
  uint64_t num_registrations() const { return num_registrations_.load(std::memory_order_acquire); }

  /// The last moment up to `limit` (ticks, of the last second) at which a span of any thread of this process ended; 0 if the
  /// rings know of none.
  uint64_t last_end(uint64_t limit) const;

  /// Appends what the rings hold of spans that ended at `since` (ticks) or later, but for a few that ended right then. Returns
  /// the moment from which on they hold everything: `since`, or a later one.
  uint64_t read_since(uint64_t since, std::vector<SpanRecord>& records) const;

  /// The moment from which the calling thread's ring holds everything; 0 if nothing is overwritten yet or it has none.
  static uint64_t held_since();

  /// Ticks <-> CLOCK_MONOTONIC, as of now.
  TickLine ticks() const { return calibration_.line(); }

  /// Whether a capture of operators counts what threads do, too; read at the ends of steps.
  CounterRecorder& counters() { return counters_; }
  /// What this process holds, as its parts say; samples of it are in every capture.
  MemoryAccount& memory() { return memory_account_; }

  /// For registration only: the calling thread ends.
  void retire_thread(const TraceBuffer* buffer);

 private:
  struct ThreadTrace {
    std::string name;
    int64_t tid = 0;
    ThreadRole role = ThreadRole::kWorks;
    std::optional<DeviceFacts> device;  // if it is none of the process's threads
    ThreadStack stack;                  // of a thread of the process
    std::unique_ptr<TraceBuffer> buffer;
    bool is_retired = false;
    // Of the capture that runs.
    uint64_t next = 0;  // number of the first record not yet moved
    uint64_t num_lost = 0;
    std::vector<std::vector<SpanRecord>> chunks;  // of up to kChunkRecords each, full but the last
  };

  void begin_sections();
  void note_span_cost(double alone_ticks, double chained_ticks);
  TraceMemory memory_of_trace() const;
  void apply_level();
  bool runs(uint64_t number) const { return is_capturing_ && number == num_captures_; }
  void sample_threads(std::unique_lock<std::mutex>& lock, uint64_t number);
  void run_drain(uint64_t number);
  void drain();
  std::size_t keep(ThreadTrace& thread, std::span<const SpanRecord> records);
  RankCapture collect();
  std::thread end_capture() noexcept;
  RankCapture describe() const;
  static ThreadCapture describe(const ThreadTrace& thread);

  const TickCalibration calibration_;
  std::atomic<uint64_t> num_registrations_{0};
  CounterRecorder counters_;
  MemoryAccount memory_account_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<std::unique_ptr<ThreadTrace>> threads_;
  TraceLevel idle_level_ = TraceLevel::kOff, step_level_ = TraceLevel::kOff;
  bool is_capturing_ = false;
  uint64_t num_captures_ = 0;  // that were begun
  CaptureOptions options_;
  bool has_help_ = false;  // somebody called help_drain() since the recorder's thread last looked
  int64_t held_bytes_ = 0;
  std::vector<SpanRecord> drained_;  // of one ring; has room for all it can hold
  uint64_t begin_ = 0;
  int64_t preemptions_at_begin_ = 0;
  double span_cost_ns_ = 0, chained_span_cost_ns_ = 0;
  MemoryRecorder memory_;
  std::unique_ptr<StackSampler> sampler_;  // while a capture of level kThreads runs, but for its first milliseconds
  std::string no_sampler_;                 // why there is none
  std::thread drainer_;
  std::condition_variable stopped_;
};

/// Identifies the running kernel: equal on all ranks of a host, and so of a clock.
std::string kernel_boot_id();

/// The process's recorder.
Recorder& recorder();

}  // namespace ferry
