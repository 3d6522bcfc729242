#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/capture.h"
#include "profiler/report/timeline/intervals.h"

// A capture made readable: one time for all ranks, lanes on which nothing overlaps, steps, requests, and the messages that
// connect ranks. Times are nanoseconds of the coordinator's clock since the capture's first moment.

namespace ferry {

/// Where slices are drawn. Slices of a lane are disjoint or nested (a kernel-like strict nesting; transfers and requests are
/// disjoint), sorted by begin, longer ones first.
struct Lane {
  enum class Kind : uint8_t {
    kThread,    // what a thread did
    kDevice,    // what a device did, by its own clock: disjoint slices (device_time.h)
    kTransfer,  // messages to or from one peer; a second lane where two are in flight
    kRequest,   // stages of requests; as many lanes as requests overlap
  };
  int32_t rank = 0;
  Kind kind = Kind::kThread;
  std::string name;  // "engine", "NVIDIA H100", "to rank 2", "request lane 1"
  int64_t tid = 0;   // of a thread; else a small number unique in the rank
};

struct Slice {
  int32_t lane = 0;  // index into Timeline::lanes
  Zone zone = Zone::kStep;
  uint8_t micro_batch = 0;
  int16_t layer = kNoLayer;
  uint32_t step = kNoStep;
  uint32_t a = 0, b = 0;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t self_ns = 0;  // without what is nested in it
  // Of an operator that a device ran.
  bool is_handed_over = false;  // on a thread: it only told the device, whose lane has the operator's time
  bool is_continued = false;    // on the device's lane: the rest of the operator before it of the same zone
  int32_t num_beside = 0;       // likewise: operators that ran side by side with it, at most

  int64_t duration_ns() const { return end_ns - begin_ns; }
  /// What a thread does of an operator that it shares with its pool is the operator's own time.
  bool is_of_operator() const { return zone == Zone::kPoolTask && self_ns == 0; }
};

/// What the slice is counted as: its zone's kind, but that a thread which hands an operator over does not compute.
inline ZoneKind kind_of(const Slice& slice) { return slice.is_handed_over ? ZoneKind::kHost : zone_info(slice.zone).kind; }

/// A step of the coordinator. Every rank's time is divided by these windows.
struct StepInfo {
  uint32_t step = 0;
  Phase phase = Phase::kDecode;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t num_tokens = 0, num_sequences = 0;
  int64_t num_drafts = 0, num_kept = 0;  // tried among those tokens, and of them right
  int32_t section = -1;                  // index into Timeline::sections, -1: of none

  /// Rows that were tokens of a sequence: all but the drafts that were wrong.
  int64_t num_useful() const { return num_tokens - num_drafts + num_kept; }
  /// "prefill 64", "decode ×4".
  std::string name() const { return work_name(phase, phase == Phase::kPrefill ? num_tokens : num_sequences); }
};

/// What a program says of a stretch of its steps (zones.h). Stretches of the same kind are one section.
struct SectionInfo {
  SectionRole role = SectionRole::kMeasured;
  Phase phase = Phase::kDecode;
  int64_t size = 0;
  IntervalSet stretches;

  /// "decode ×4", "decode ×4 warm-up", "aside".
  std::string name() const;
};

/// An arrow: dispatch on the coordinator -> experts on a worker -> combine on the coordinator. Indices into Timeline::slices.
struct Flow {
  uint64_t id = 0;  // unique, from 1
  uint32_t step = 0;
  int32_t layer = 0;
  uint8_t micro_batch = 0;
  int32_t peer = 0;       // the worker's rank
  int32_t dispatch = -1;  // MoeDistributeDispatch slice of that peer on the coordinator
  int32_t experts = -1;   // MoeExperts slice on the worker
  int32_t combine = -1;   // MoeTokenUnpermute slice on the coordinator
};

/// One message seen from both ends.
struct Message {
  uint32_t step = 0;
  int32_t layer = 0;
  uint8_t micro_batch = 0;
  bool is_dispatch = false;        // else combine
  int32_t source = 0, target = 0;  // ranks
  int64_t bytes = 0;
  int64_t send_begin_ns = 0, send_end_ns = 0;        // as the source saw it
  int64_t receive_begin_ns = 0, receive_end_ns = 0;  // as the target saw it
};

/// A request as far as the capture saw it; times that it did not see are absent.
struct RequestInfo {
  uint32_t request = 0;
  int64_t num_prompt = 0, num_generated = 0;
  std::optional<int64_t> arrival_ns, queued_ns, first_scheduled_ns, first_token_ns, finished_ns;
  std::string finish_reason;
  int64_t num_preemptions = 0;
  std::optional<int64_t> first_preempted_ns;
  int64_t preempted_ns = 0;     // all of them together
  std::vector<uint32_t> steps;  // that computed rows of it, ascending
};

struct CounterSample {
  int32_t rank = 0;  // whose counter
  Zone zone = Zone::kRunningRequests;
  uint32_t b = 0;        // what the zone's b_name says (a peer), else 0
  int64_t since_ns = 0;  // from when on it counted; at_ns of a value of the moment
  int64_t at_ns = 0;
  int64_t value = 0;
  ExchangeId at;  // where it was counted; kNoStep and kNoLayer outside
};

struct Timeline {
  int64_t begin_ns = 0, end_ns = 0;   // of the capture; begin_ns is 0
  int64_t origin_ns = 0;              // what the coordinator's clock said then
  std::vector<Lane> lanes;            // by rank; a rank's threads first, then its devices
  std::vector<Slice> slices;          // by lane, then begin
  std::vector<StepInfo> steps;        // ascending
  std::vector<SectionInfo> sections;  // by their first moment
  std::vector<Flow> flows;
  std::vector<Message> messages;         // those whose both ends are in the capture
  std::vector<RequestInfo> requests;     // by arrival
  std::vector<CounterSample> counters;   // by time
  int64_t num_unpaired = 0;              // transfers whose other end was lost or lies outside the capture
  int64_t num_causality_violations = 0;  // messages received before they were sent, beyond the clocks' bound
  int64_t worst_violation_ns = 0;
  double clock_bound_ns = 0;  // the largest of the ranks'

  /// Ticks of a rank.
  int64_t to_ns(const RankCapture& rank, uint64_t ticks) const {
    return rank.alignment.to_coordinator_ns(rank.ticks.to_ns(ticks)) - origin_ns;
  }
  /// [first, last) of `slices` on that lane.
  std::pair<int32_t, int32_t> lane_range(int32_t lane) const;
  /// The step whose window holds `at_ns`, or null.
  const StepInfo* step_at(int64_t at_ns) const;
};

/// Spans that cross the capture's start or stop are cut there; steps that began before the start are dropped.
Timeline make_timeline(const Capture& capture);

}  // namespace ferry
