#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"

// What the two timeline files (Perfetto and Chrome JSON) say alike, each in its own encoding.

namespace ferry {

/// The files' times are the timeline's plus this: readers drop what happens at 0.
inline constexpr int64_t kTraceStartNs = 1'000'000;

/// "step", "section", "comp", "host", "wait", "comm", "request", "counter": what viewers colour by and queries select.
const char* category_name(ZoneKind kind);

/// One thing said about a slice: a number, or a text if there is one. Names and texts live as long as the report's input.
struct TraceArg {
  const char* name = "";
  int64_t value = 0;
  const char* text = nullptr;
};

/// One end of an arrow at a slice's begin.
struct ArrowEnd {
  enum class Role : uint8_t { kStart, kStep, kEnd };
  int32_t slice = 0;  // index into Timeline::slices
  uint64_t id = 0;    // Flow::id
  Role role = Role::kStart;
};

/// The ends of all arrows that can be drawn, by slice, then id. Viewers take an arrow's ends in the order of time and look for
/// the slice that is open then, so one whose slices begin in another order (by the clocks' error) or are empty is left out.
std::vector<ArrowEnd> find_arrow_ends(const Timeline& timeline);

/// Those at one slice.
std::span<const ArrowEnd> arrow_ends_of(const std::vector<ArrowEnd>& ends, int32_t slice);

/// A row of counter samples: one counter of one rank.
struct CounterRow {
  int32_t rank = 0;
  Zone zone = Zone::kRunningRequests;
  uint32_t b = 0;
  std::string name;  // "rank_rows of rank 2"

  bool holds(const CounterSample& sample) const { return sample.rank == rank && sample.zone == zone && sample.b == b; }
};

class TraceFacts {
 public:
  /// `input` must outlive this.
  explicit TraceFacts(const ReportInput& input);

  /// "rank 0 coordinator (host)".
  std::string rank_title(const RankCapture& rank) const;
  /// Where and what the process really was: "host …", "process 4711", and how well its clock is known if it is not the
  /// coordinator's.
  std::vector<std::string> rank_labels(const RankCapture& rank) const;

  /// Fills `args` with step, phase, layer, layer_type, part and what the zone's a and b are. Those that a slice has not are
  /// left out; slices of a zone have the same ones, but that a device's say how many operators ran beside them.
  void fill_args(const Slice& slice, std::vector<TraceArg>& args) const;

  /// Spans of the lane's thread that are not in the capture; 0 for lanes that are no threads.
  uint64_t num_lost(const Lane& lane) const;

  /// By rank, zone and b. `counter_rows()[i].holds(sample)` for exactly one i: row_of(sample).
  const std::vector<CounterRow>& counter_rows() const { return counter_rows_; }
  std::size_t row_of(const CounterSample& sample) const;

 private:
  const ReportInput& input_;
  std::vector<const StepInfo*> steps_;  // by number
  std::vector<CounterRow> counter_rows_;
};

}  // namespace ferry
