#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/export/trace_facts.h"
#include "profiler/report/timeline/report_input.h"

// What the timeline files draw beside recorded slices, so that a reader sees without a click what a stretch of time was about:
// slices around slices (a step on every rank, a layer, a part of a layer), and a few lanes that sum up the whole run.

namespace ferry {

/// Of one name from begin to end. The name lives as long as its Outline.
struct OutlineSlice {
  enum class Level : uint8_t { kStep, kLayer, kPart, kOverview, kPath };
  int64_t begin_ns = 0, end_ns = 0;
  std::string_view name;
  Level level = Level::kOverview;
  // Of the critical path (kPath); else there is no kind.
  const char* kind = nullptr;  // path_kind_name()
  int64_t step = 0;            // its number
  int32_t rank = 0;            // where it was

  /// As category_name() of what was recorded: "outline", "overview", "critical path".
  const char* category() const;
};

/// What is drawn on a lane, recorded or not, in the order of drawing: by begin, outer before inner.
struct DrawnSlice {
  int64_t begin_ns = 0, end_ns = 0;
  int32_t slice = -1;                     // index into Timeline::slices
  const OutlineSlice* outline = nullptr;  // instead
};

class Outline {
 public:
  /// `input` must outlive this.
  explicit Outline(const ReportInput& input);

  /// Slices are disjoint or nested, as the lane's own are.
  std::vector<DrawnSlice> draw(int32_t lane) const;

  /// A lane of the overview; its slices are disjoint.
  struct OverviewLane {
    int32_t rank = 0;
    std::string name;
    std::vector<OutlineSlice> slices;
  };
  /// First "phase": what the coordinator computes ("prefill 64", "decode ×4", one slice for steps of a kind in a row;
  /// "pictures" where the vision tower works between steps). Then "critical path": what steps took their time for, on whichever
  /// rank (critical_path.h), each piece as "path: RmsNorm", so that sums by name count no operator twice; in joined captures
  /// one lane for each coordinator. Then for every rank when it "computes", "waits for rank 2", "waits for rows", "waits for a
  /// send".
  const std::vector<OverviewLane>& overview() const { return overview_; }

  /// "prefill 64" of a step, else the zone's name.
  std::string_view slice_name(const Slice& slice) const;

 private:
  void outline_lane(int32_t lane);
  void make_phase_lane();
  void make_path_lanes();
  void make_rank_lane(const RankCapture& rank);
  std::string_view keep(std::string name) { return *names_.insert(std::move(name)).first; }

  const ReportInput& input_;
  std::set<std::string> names_;
  std::map<uint32_t, std::string_view> step_names_;
  std::vector<std::vector<OutlineSlice>> around_;  // by lane
  std::vector<OverviewLane> overview_;
};

/// Fills `args` with what is said of the slice: of the critical path step, rank and kind; of others nothing.
void fill_args(const OutlineSlice& slice, std::vector<TraceArg>& args);

}  // namespace ferry
