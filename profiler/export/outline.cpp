#include "profiler/export/outline.h"

#include <algorithm>
#include <tuple>

#include "profiler/report/critical_path/critical_path.h"
#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

const char* part_title(Part part) {
  switch (part) {
    case Part::kDeltaNet: return "DeltaNet";
    case Part::kSharedExpert: return "shared expert";
    case Part::kHead: return "embedding and head";
    default: return part_name(part);
  }
}

constexpr int kRecordedDepth = 6;

/// Outer first where two begin and end together.
int depth_of(const Slice& slice) { return slice.zone == Zone::kStep ? 0 : kRecordedDepth; }
int depth_of(const OutlineSlice& outline) { return 1 + static_cast<int>(outline.level); }

bool is_wait(const Slice& slice) { return kind_of(slice) == ZoneKind::kWait; }

/// Slices that belong together because they follow one another with the same key. Empty ones are not drawn.
template <class Key>
class Run {
 public:
  explicit Run(std::vector<OutlineSlice>& done) : done_(done) {}
  ~Run() { close(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void add(const Key& key, const OutlineSlice& slice) {
    if (!is_open_ || key != key_) {
      close();
      key_ = key;
      run_ = slice;
      is_open_ = true;
    }
    run_.end_ns = std::max(run_.end_ns, slice.end_ns);
  }
  /// What does not belong to any ends the run.
  void add_if(bool belongs, const Key& key, const OutlineSlice& slice) { belongs ? add(key, slice) : close(); }
  void close() {
    if (is_open_ && run_.end_ns > run_.begin_ns) done_.push_back(run_);
    is_open_ = false;
  }

 private:
  std::vector<OutlineSlice>& done_;
  Key key_{};
  OutlineSlice run_;
  bool is_open_ = false;
};

/// The runs of one lane.
class LaneOutline {
 public:
  explicit LaneOutline(std::vector<OutlineSlice>& done) : steps_(done), layers_(done), parts_(done) {}

  /// The next slice that nothing holds. Without a name there is no step or layer to draw.
  void add(const Slice& slice, std::string_view step_name, std::string_view layer_name) {
    using Level = OutlineSlice::Level;
    const LayerKey layer{slice.step, slice.layer, slice.micro_batch};
    const Part part = zone_info(slice.zone).part;
    const bool has_part = !is_wait(slice) && part != Part::kOther && slice.step != kNoStep;
    steps_.add_if(!step_name.empty(), slice.step, {slice.begin_ns, slice.end_ns, step_name, Level::kStep});
    layers_.add_if(!layer_name.empty(), layer, {slice.begin_ns, slice.end_ns, layer_name, Level::kLayer});
    parts_.add_if(has_part, {layer, part}, {slice.begin_ns, slice.end_ns, part_title(part), Level::kPart});
  }
  void close() {
    steps_.close();
    layers_.close();
    parts_.close();
  }

 private:
  using LayerKey = std::tuple<uint32_t, int16_t, uint8_t>;  // step, layer, micro-batch
  Run<uint32_t> steps_;
  Run<LayerKey> layers_;
  Run<std::pair<LayerKey, Part>> parts_;
};

std::string wait_title(const Slice& slice) {
  switch (slice.zone) {
    case Zone::kWaitDispatch: return "waits for rows";
    case Zone::kWaitCombine: return "waits for rank " + std::to_string(slice.b);
    case Zone::kWaitSend: return "waits for a send";
    default: return "waits";
  }
}

}  // namespace

Outline::Outline(const ReportInput& input) : input_(input), around_(input.timeline.lanes.size()) {
  for (const StepInfo& step : input.timeline.steps) step_names_[step.step] = keep(step.name());
  for (std::size_t l = 0; l < input.timeline.lanes.size(); ++l) {
    const Lane::Kind kind = input.timeline.lanes[l].kind;
    if (kind == Lane::Kind::kThread || kind == Lane::Kind::kDevice) outline_lane(static_cast<int32_t>(l));
  }
  make_phase_lane();
  make_path_lanes();
  for (const RankCapture& rank : input.capture.ranks) make_rank_lane(rank);
}

std::string_view Outline::slice_name(const Slice& slice) const {
  const auto step = slice.zone == Zone::kStep ? step_names_.find(slice.step) : step_names_.end();
  return step != step_names_.end() ? step->second : std::string_view(zone_info(slice.zone).name);
}

/// Steps (where the lane has none of its own), layers and parts as runs of the slices that no operator, wait or other work
/// holds. A wait belongs to its layer but to no part: it is to be seen.
void Outline::outline_lane(int32_t lane) {
  const auto [first, last] = input_.timeline.lane_range(lane);
  const auto begin = input_.timeline.slices.begin() + first, end = input_.timeline.slices.begin() + last;
  const bool has_steps = std::any_of(begin, end, [](const Slice& slice) { return slice.zone == Zone::kStep; });
  LaneOutline outline(around_[static_cast<std::size_t>(lane)]);
  int64_t step_end_ns = -1;  // of the step around the next slice
  int64_t held_until_ns = -1;
  for (auto slice = begin; slice != end; ++slice) {
    const bool is_step = slice->zone == Zone::kStep;
    if (is_step || (step_end_ns >= 0 && step_end_ns <= slice->begin_ns)) {
      outline.close();
      step_end_ns = is_step ? slice->end_ns : -1;
    }
    if (is_step || slice->begin_ns < held_until_ns) continue;
    held_until_ns = slice->end_ns;
    const auto step = has_steps ? step_names_.end() : step_names_.find(slice->step);
    outline.add(*slice, step == step_names_.end() ? std::string_view() : step->second,
                slice->layer == kNoLayer ? std::string_view() : keep("layer " + std::to_string(slice->layer)));
  }
}

std::vector<DrawnSlice> Outline::draw(int32_t lane) const {
  const auto [first, last] = input_.timeline.lane_range(lane);
  std::vector<std::pair<DrawnSlice, int>> drawn;  // with its depth
  for (int32_t i = first; i < last; ++i) {
    const Slice& slice = input_.timeline.slices[static_cast<std::size_t>(i)];
    drawn.push_back({{slice.begin_ns, slice.end_ns, i, nullptr}, depth_of(slice)});
  }
  for (const OutlineSlice& outline : around_[static_cast<std::size_t>(lane)])
    drawn.push_back({{outline.begin_ns, outline.end_ns, -1, &outline}, depth_of(outline)});
  std::stable_sort(drawn.begin(), drawn.end(), [](const auto& x, const auto& y) {
    return std::tuple(x.first.begin_ns, -x.first.end_ns, x.second) < std::tuple(y.first.begin_ns, -y.first.end_ns, y.second);
  });
  std::vector<DrawnSlice> result;
  result.reserve(drawn.size());
  for (const auto& [slice, depth] : drawn) result.push_back(slice);
  return result;
}

void Outline::make_phase_lane() {
  const Timeline& timeline = input_.timeline;
  std::vector<OutlineSlice> slices;
  {
    Run<std::string_view> run(slices);
    for (const StepInfo& step : timeline.steps) {
      const bool is_warm_up =
          step.section >= 0 && timeline.sections[static_cast<std::size_t>(step.section)].role == SectionRole::kWarmUp;
      const std::string_view name = keep(step.name() + (is_warm_up ? " warm-up" : ""));
      run.add(name, {step.begin_ns, step.end_ns, name});
    }
  }
  const IntervalSet asides = find_asides(timeline), pictures = find_pictures(timeline);
  const IntervalSet between = unite(asides, pictures);
  // Steps of a kind in a row may have something else in between.
  std::vector<OutlineSlice> apart;
  for (const OutlineSlice& slice : slices) {
    for (const Interval& piece : subtract({{slice.begin_ns, slice.end_ns}}, between)) {
      apart.push_back(slice);
      apart.back().begin_ns = piece.begin;
      apart.back().end_ns = piece.end;
    }
  }
  for (const Interval& aside : asides) apart.push_back({aside.begin, aside.end, keep("aside")});
  for (const Interval& stretch : pictures) apart.push_back({stretch.begin, stretch.end, keep("pictures")});
  std::sort(apart.begin(), apart.end(), [](const auto& x, const auto& y) { return x.begin_ns < y.begin_ns; });
  overview_.push_back({0, "phase", std::move(apart)});
}

/// Steps of a coordinator do not overlap; of a capture that says they do, what comes later is cut.
void Outline::make_path_lanes() {
  const Timeline& timeline = input_.timeline;
  const std::vector<int32_t> coordinators = find_coordinators(timeline);
  std::map<int32_t, std::vector<OutlineSlice>> lanes;  // by coordinator
  for (const PathPiece& piece : input_.critical_path) {
    const auto step = static_cast<std::size_t>(piece.step);
    std::vector<OutlineSlice>& slices = lanes[coordinators[step]];
    const int64_t begin_ns = slices.empty() ? piece.begin_ns : std::max(piece.begin_ns, slices.back().end_ns);
    if (begin_ns >= piece.end_ns) continue;
    slices.push_back({.begin_ns = begin_ns,
                      .end_ns = piece.end_ns,
                      .name = keep("path: " + path_piece_name(timeline, piece)),
                      .level = OutlineSlice::Level::kPath,
                      .kind = path_kind_name(piece.kind),
                      .step = timeline.steps[step].step,
                      .rank = piece.rank});
  }
  for (auto& [rank, slices] : lanes)
    overview_.push_back(
        {rank, rank == 0 ? "critical path" : "critical path of rank " + std::to_string(rank), std::move(slices)});
}

void Outline::make_rank_lane(const RankCapture& rank) {
  const Timeline& timeline = input_.timeline;
  IntervalSet taken = input_.activity.at(static_cast<std::size_t>(rank.rank)).computing;
  std::vector<OutlineSlice> slices;
  for (const Interval& i : taken) slices.push_back({i.begin, i.end, keep("computes")});
  std::map<std::string, std::vector<Interval>> waits;  // by title
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    if (timeline.lanes[l].rank != rank.rank || timeline.lanes[l].kind != Lane::Kind::kThread) continue;
    const auto [first, last] = timeline.lane_range(static_cast<int32_t>(l));
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
      if (is_peer_wait(slice.zone)) waits[wait_title(slice)].push_back({slice.begin_ns, slice.end_ns});
    }
  }
  for (auto& [title, intervals] : waits) {
    const IntervalSet own = subtract(make_interval_set(std::move(intervals)), taken);
    for (const Interval& i : own) slices.push_back({i.begin, i.end, keep(title)});
    taken = unite(taken, own);
  }
  std::sort(slices.begin(), slices.end(), [](const auto& x, const auto& y) { return x.begin_ns < y.begin_ns; });
  const std::string role = rank.rank == 0 ? " coordinator" : " worker";
  overview_.push_back({rank.rank, "rank " + std::to_string(rank.rank) + role, std::move(slices)});
}

const char* OutlineSlice::category() const {
  switch (level) {
    case Level::kOverview: return "overview";
    case Level::kPath: return "critical path";
    default: return "outline";
  }
}

void fill_args(const OutlineSlice& slice, std::vector<TraceArg>& args) {
  args.clear();
  if (slice.kind == nullptr) return;
  args.push_back({"step", slice.step});
  args.push_back({"rank", slice.rank});
  args.push_back({"kind", 0, slice.kind});
}

}  // namespace ferry
