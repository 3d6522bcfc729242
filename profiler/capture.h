#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/counters/counter_readings.h"
#include "profiler/memory/memory_samples.h"
#include "profiler/operator_facts.h"
#include "profiler/span_record.h"
#include "profiler/stacks/stack_samples.h"

// A capture as it is stored: what every rank recorded, untouched, and what is needed to read it. Everything that people look
// at (timelines, tables, pages) is derived from these files, so it can be made again.
//
//   DIR/capture.json     CaptureInfo
//   DIR/rank-<r>.spans   RankCapture: a JSON header, the records, and sections of other kinds, one file a rank
//   DIR/routing.ferryrt  what routers chose (moe/routing/routing_trace.h), where that was asked for

namespace ferry {

inline constexpr std::size_t kMostCommandBytes = 4096;  // of a line that started a coordinator: the rest is cut off

/// Ticks of a rank's clock to nanoseconds of its CLOCK_MONOTONIC: ns = base_ns + (ticks - base_ticks) * ns_per_tick.
struct TickLine {
  uint64_t base_ticks = 0;
  int64_t base_ns = 0;
  double ns_per_tick = 1;

  int64_t to_ns(uint64_t ticks) const;
};

/// A rank's nanoseconds to the coordinator's: t + offset_ns + drift * (t - reference_ns). Both clocks are CLOCK_MONOTONIC.
struct ClockAlignment {
  int64_t reference_ns = 0;  // of the rank's clock
  double offset_ns = 0;      // coordinator - rank at reference_ns
  double drift = 0;          // relative: 1e-6 is 1 ppm
  double bound_ns = 0;       // the error is at most this; 0 on the coordinator's host, where the clock is the same
  int32_t num_samples = 0;   // exchanges that the line was fitted to

  int64_t to_coordinator_ns(int64_t rank_ns) const;
};

inline constexpr int64_t kMaxRunningOn = 16;
inline constexpr std::size_t kMaxWorkerChanges = 1024;

/// What one thread recorded; or what a device did, by its own timestamps. A device's spans overlap where operators ran side by
/// side: each is from the end of all that ran before it to that of what ran with it. Their union is when its queue was busy.
/// Of what ran side by side one operator at most runs on when the others end or begin; kMaxRunningOn are read.
struct ThreadCapture {
  std::string name;  // "engine", "pool 1", …; of a device its own
  bool is_device = false;
  int64_t tid = 0;        // of a device 0
  uint64_t num_lost = 0;  // spans of the capture's time that are not in `records`
  std::vector<SpanRecord> records;
};

/// The device that a rank computes on, and how its time came into the capture.
struct DeviceFacts {
  std::string name;           // empty: the rank computes on the CPU
  std::string driver;         // name and version
  std::string clock;          // "calibrated", "bracketed", or "none" and why: then there are no spans of it
  double clock_bound_ns = 0;  // by which its spans may be off the rank's clock
};

/// What one rank recorded between start and stop.
struct RankCapture {
  int32_t rank = 0;
  std::string host;
  std::string boot_id;  // of the running kernel: equal ids share a clock
  int64_t pid = 0;
  int32_t num_threads = 0;  // of the pool
  std::string cores;        // that it may run on, as Linux lists them: "0-3,8"; empty in captures of older versions
  TickLine ticks;
  ClockAlignment alignment;
  uint64_t begin = 0, end = 0;      // ticks of start and stop
  double span_cost_ns = 0;          // what recording one span takes, measured at start
  double chained_span_cost_ns = 0;  // that of one which begins with the end of the one before; 0: not known, as in older ones
  int64_t peak_rss_bytes = 0;
  int64_t num_preemptions = 0;  // involuntary context switches while capturing
  DeviceFacts device;
  std::vector<ThreadCapture> threads;
  // Sections (profiler/capture_sections.h): empty where there is nothing of their kind.
  CounterCapture counters;
  MemoryCapture memory;
  StackCapture stacks;
};

/// What the model says of itself.
struct ModelFacts {
  std::string name;
  std::string dtype;                     // "f32", "bf16": of activations
  std::vector<std::string> layer_types;  // by layer, as the model calls its mixers: "linear_attention", …; behind them "mtp"
  int64_t top_k = 0;                     // experts of a token; 0: there are none
  std::vector<OperatorFacts> operators;  // empty in captures of older versions: then no operator's cost is known
};

/// Who holds which experts, all copies of them.
struct HolderFacts {
  uint32_t epoch = 0;                          // of the placement
  std::vector<int32_t> ranks;                  // at most 64
  std::vector<std::vector<uint64_t>> holders;  // [num_layers][num_experts] bit r: a copy is on ranks[r]

  /// Those that hold the expert.
  std::vector<int32_t> ranks_of(std::size_t layer, std::size_t expert) const;
};

/// A worker that came to stand otherwise: what its kWorkerChange has no room for.
struct WorkerChangeFacts {
  uint64_t ticks = 0;  // of the coordinator's clock, as the span has them
  int32_t rank = 0;
  std::string from, to;  // worker_state_name()
  std::string reason;
};

/// What the coordinator knows of the run.
struct CaptureInfo {
  std::string version;    // of Ferry
  std::string command;    // line that started the coordinator
  std::string transport;  // "local", "mpi", "gloo"
  TraceLevel level = TraceLevel::kOperators;
  int32_t world_size = 1;
  int64_t start_epoch_ns = 0;  // CLOCK_REALTIME at the coordinator's start, for people
  ModelFacts model;
  double read_bytes_per_s = 0;  // roofs, measured with the coordinator's threads; 0 if not measured
  double flops_per_s = 0;
  int64_t max_running_requests = 0;  // limits of the scheduler: what requests may wait for; 0 if not known
  int64_t num_kv_blocks = 0;
  // What the run does by its options, those that nobody gave among them: {"--prefill-chunk", "2048"}. Empty in captures of
  // older versions.
  std::map<std::string, std::string> settings;
  std::vector<int32_t> expert_rank;                 // [num_experts] the rank that holds each
  std::vector<std::vector<int64_t>> expert_tokens;  // [num_layers][num_experts] tokens while capturing
  // Empty in captures of older versions, and where all experts are the coordinator's own.
  HolderFacts placement;                          // as it was when the capture began; of a snapshot, when it was taken
  std::vector<WorkerChangeFacts> worker_changes;  // by time, the latest kMaxWorkerChanges
  // Kept steps of an archive, counted by why they were kept: {"slow", 2}. What happened between them was not recorded. Empty:
  // all that happened between start and stop was.
  std::map<std::string, int64_t> selection;
};

struct Capture {
  CaptureInfo info;
  std::vector<RankCapture> ranks;  // by rank
  std::vector<std::byte> routing;  // an encoded routing trace as it is written; empty: none. Not read back
};

/// One rank's capture as the bytes of its file, and back. Reading checks everything and throws Error{kInvalidArgument} that
/// names `source` (a file, or a rank) and what is wrong. Sections of kinds that this version does not know are skipped.
std::vector<std::byte> encode_rank_capture(const RankCapture& capture);
RankCapture decode_rank_capture(std::span<const std::byte> bytes, const std::string& source);

/// What the coordinator knows as the text of capture.json, and back. Reading checks everything and throws
/// Error{kInvalidArgument} that names `source`.
std::string encode_capture_info(const CaptureInfo& info);
CaptureInfo decode_capture_info(std::string_view text, const std::string& source);

/// Makes the folder and sees that a capture can be written there. Throws Error{kFailedPrecondition} that says what is wrong: it
/// holds a capture already, it cannot be made, nothing can be written into it.
void prepare_capture_folder(const std::filesystem::path& directory);

/// Writes capture.json and the ranks' files into `directory`, which is made if it is missing. Throws Error{kUnavailable} with
/// the system's reason.
void write_capture(const std::filesystem::path& directory, const Capture& capture);
/// Throws Error{kNotFound} if there is no capture, {kInvalidArgument} for a damaged one.
Capture read_capture(const std::filesystem::path& directory);

}  // namespace ferry
