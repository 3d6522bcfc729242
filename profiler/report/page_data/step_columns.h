#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Packs single steps of a timeline for the page: what every thread, device and transfer lane of every rank did in the step's
/// window. The input must outlive it.
///
/// The bytes of a step are varints (packing.h); a slice's number is its place in this step. With n slices:
///   early: by how much the first slice begins before the step, ns
///   num_lanes, then for each lane: its place in lanes(), its number of slices
///   zone[n] (place in kZones), layer + 1 [n], micro_batch[n], a[n], b[n],
///   begin[n]: since the begin of the slice before it on its lane, of a lane's first since the step's begin - early; ns
///   duration[n], ns
///   flags[n]: 1 handed over to a device, 2 the rest of the operator before it
///   arrows of three kinds, each as their number and then pairs (from slice, to slice): dispatch -> experts, experts -> combine
///   and the send of a message -> its receive
///   the critical path: its number of pieces m, then kind[m] (PathKind), rank[m], peer + 1 [m], slice + 1 [m] (0: none in the
///   step) as what it is more than the one before, 0, -1, 1, -2, … as 0, 1, 2, 3, …, and end[m]: 0 with its slice, 1 with the
///   begin of the next piece's, else its duration + 2; the first begins with the step, each other where the one before ends
class StepColumns {
 public:
  explicit StepColumns(const ReportInput& input);

  /// Lanes that a step may name, as indices into timeline.lanes: all but those of requests.
  const std::vector<int32_t>& lanes() const { return lanes_; }
  /// `step` is an index into timeline.steps.
  std::string pack(std::size_t step) const;
  std::size_t count_slices(std::size_t step) const;

 private:
  struct LaneSlices {
    std::size_t lane = 0;         // place in lanes_
    std::vector<int32_t> slices;  // indices into timeline.slices, by begin
  };

  std::vector<LaneSlices> find_slices(const StepInfo& step) const;

  const ReportInput& input_;
  std::vector<int32_t> lanes_;
  std::vector<int64_t> last_end_ns_;         // [timeline.slices] latest end of it and those before it on its lane
  std::vector<std::vector<int32_t>> flows_;  // [timeline.steps] indices into timeline.flows
};

}  // namespace ferry
