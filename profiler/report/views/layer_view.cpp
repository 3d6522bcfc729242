#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/layer_types.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// A layer's time over the steps of one group, on the coordinator's step lane. In ns.
struct LayerTime {
  std::array<int64_t, kNumParts> parts{};
  int64_t wait = 0;
  int64_t exposed = 0;
  int64_t worker_experts = 0;  // sum over steps of the slowest worker's
  std::vector<double> totals;  // one per step

  void add(const Slice& slice) {
    const ZoneInfo& zone = zone_info(slice.zone);
    (zone.kind == ZoneKind::kWait ? wait : parts[static_cast<std::size_t>(zone.part)]) += slice.self_ns;
  }
};

/// Walks over the steps and hands each one's layers to their group. Layer -1 is at index 0.
class LayerTimes {
 public:
  explicit LayerTimes(const ReportInput& input)
      : input_(input),
        num_rows_(static_cast<std::size_t>(count_layers(input)) + 1),
        groups_(step_groups(input.timeline).size()),
        current_(num_rows_),
        windows_(num_rows_) {
    for (auto& group : groups_) group.resize(num_rows_);
    for_each_step_slice(input.timeline, [&](std::size_t step, const Slice& slice) {
      if (step != step_ || !is_open_) {
        close_step();
        step_ = step;
        is_open_ = true;
      }
      add(slice);
    });
    close_step();
    add_worker_experts();
  }

  const std::vector<LayerTime>& group(std::size_t g) const { return groups_[g]; }

 private:
  static std::size_t row_of(const Slice& slice) { return slice.layer < 0 ? 0 : static_cast<std::size_t>(slice.layer) + 1; }

  void add(const Slice& slice) {
    const std::size_t row = row_of(slice);
    groups_[group_index(input_.timeline.steps[step_])][row].add(slice);
    current_[row] += slice.self_ns;
    Interval& window = windows_[row];
    window = window.end == 0 ? Interval{slice.begin_ns, slice.end_ns}
                             : Interval{std::min(window.begin, slice.begin_ns), std::max(window.end, slice.end_ns)};
  }

  /// Exposed communication between a layer's first and last slice is that layer's, the step's rest is layer -1's.
  void close_step() {
    if (!is_open_) return;
    const StepInfo& step = input_.timeline.steps[step_];
    std::vector<LayerTime>& rows = groups_[group_index(step)];
    int64_t rest_ns = break_down(input_.activity[0], {step.begin_ns, step.end_ns}).exposed;
    for (std::size_t row = num_rows_; row-- > 0;) {
      int64_t exposed_ns = rest_ns;
      if (row > 0) {
        exposed_ns = windows_[row].end == 0 ? 0 : break_down(input_.activity[0], windows_[row]).exposed;
        rest_ns -= exposed_ns;
      }
      rows[row].exposed += exposed_ns;
      rows[row].totals.push_back(static_cast<double>(current_[row]));
      current_[row] = 0;
      windows_[row] = {};
    }
    is_open_ = false;
  }

  void add_worker_experts() {
    const Timeline& timeline = input_.timeline;
    if (input_.capture.ranks.size() < 2) return;
    const StepIndex index(timeline);
    std::vector<int64_t> slowest(timeline.steps.size() * num_rows_, 0), own(slowest.size(), 0);
    for (std::size_t r = 1; r < input_.capture.ranks.size(); ++r) {
      std::fill(own.begin(), own.end(), 0);
      for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
        const Lane& lane = timeline.lanes[l];
        const bool is_at_work = lane.kind == Lane::Kind::kThread || lane.kind == Lane::Kind::kDevice;
        if (lane.rank != static_cast<int32_t>(r) || !is_at_work) continue;
        const auto [first, last] = timeline.lane_range(static_cast<int32_t>(l));
        for (int32_t i = first; i < last; ++i) {
          const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
          const bool is_expert = zone_info(slice.zone).part == Part::kExperts && !slice.is_handed_over;
          const int32_t step = is_expert ? index.find(slice.step) : -1;
          if (step >= 0) own[static_cast<std::size_t>(step) * num_rows_ + row_of(slice)] += slice.self_ns;
        }
      }
      for (std::size_t i = 0; i < own.size(); ++i) slowest[i] = std::max(slowest[i], own[i]);
    }
    for (std::size_t i = 0; i < slowest.size(); ++i)
      groups_[group_index(timeline.steps[i / num_rows_])][i % num_rows_].worker_experts += slowest[i];
  }

  const ReportInput& input_;
  const std::size_t num_rows_;
  std::vector<std::vector<LayerTime>> groups_;  // of steps, as step_groups() has them
  std::vector<int64_t> current_;                // of the open step, by row
  std::vector<Interval> windows_;               // likewise; end 0: nothing yet
  std::size_t step_ = 0;
  bool is_open_ = false;
};

std::string layer_type_name(const ModelFacts& model, std::size_t row) {
  return row > 0 && row <= model.layer_types.size() ? model.layer_types[row - 1] : "";
}

std::size_t index_of_type(std::string_view name) {
  return static_cast<std::size_t>(std::find(kLayerTypes.begin(), kLayerTypes.end(), name) - kLayerTypes.begin());
}

/// Layers of a step that are of this kind or have such a half; 0 for what is no layer, or not known.
int64_t count_of_type(const ModelFacts& model, std::string_view type) {
  if (type == "moe" || type == "dense") {
    const OperatorFacts* each = find_operator(model.operators, type == "moe" ? Zone::kGroupedDown : Zone::kDenseDown);
    return each != nullptr ? each->num_layers : 0;
  }
  return std::count(model.layer_types.begin(), model.layer_types.end(), type);
}

}  // namespace

const char* layer_type_of(Zone zone) {
  switch (zone) {
    case Zone::kEmbedding: return "embed";
    case Zone::kGatherRows:
    case Zone::kFinalNorm:
    case Zone::kLmHead: return "lm_head";
    case Zone::kDraft: return "draft";
    default: break;
  }
  switch (zone_info(zone).part) {
    case Part::kDeltaNet: return "linear_attention";
    case Part::kAttention: return "full_attention";
    case Part::kShortConv: return "short_conv";
    case Part::kRouter:
    case Part::kDispatch:
    case Part::kExperts:
    case Part::kCombine:
    case Part::kSharedExpert: return "moe";
    case Part::kDenseFfn: return "dense";
    case Part::kNorm: return "norm";
    case Part::kHead: return "lm_head";
    case Part::kSample: return "sample";
    case Part::kVision: return "vision";
    case Part::kOther: return "other";
  }
  return "other";
}

Table make_layer_view(const ReportInput& input) {
  Table table{.id = "layer",
              .title = "Layers",
              .note =
                  "Microseconds a step on the coordinator: each operator's own time by part, and waits for other ranks. "
                  "total = parts + wait; the layers of a phase add up to its us_per_step. Layer -1 is what belongs to no "
                  "layer; mtp is the layer that guesses drafts, as often as it ran in the step. exposed: only messages were in "
                  "flight. worker_experts: the slowest worker's experts." +
                  device_note(input, "With a GPU: its time, and the host's, with its waits, while the GPU had nothing to do."),
              .columns = {{"layer"}, {"layer_type"}, {"phase"}}};
  for (int part = 0; part < kNumParts; ++part)
    table.columns.push_back({std::string(part_name(static_cast<Part>(part))) + "_us", 3});
  for (const char* name : {"wait_us", "total_us", "p99_us", "exposed_us", "worker_experts_us"})
    table.columns.push_back({name, 3});

  const LayerTimes times(input);
  const auto counts = count_steps(input.timeline);
  const std::vector<std::string> groups = step_groups(input.timeline);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto steps = static_cast<double>(counts[g]);
    const std::vector<LayerTime>& rows = times.group(g);
    for (std::size_t row = 0; row < rows.size() && counts[g] > 0; ++row) {
      const LayerTime& time = rows[row];
      std::vector<Table::Cell> cells = {static_cast<int64_t>(row) - 1, layer_type_name(input.capture.info.model, row),
                                        groups[g]};
      int64_t total_ns = time.wait;
      for (const int64_t part_ns : time.parts) {
        total_ns += part_ns;
        cells.emplace_back(to_us(part_ns) / steps);
      }
      cells.emplace_back(to_us(time.wait) / steps);
      cells.emplace_back(to_us(total_ns) / steps);
      cells.emplace_back(percentile(time.totals, 0.99) / 1e3);
      cells.emplace_back(to_us(time.exposed) / steps);
      cells.push_back(cell_if(input.capture.ranks.size() > 1 && row > 0, to_us(time.worker_experts) / steps));
      table.rows.push_back(std::move(cells));
    }
  }
  return table;
}

Table make_layer_type_view(const ReportInput& input) {
  Table table{.id = "layer_type",
              .title = "Layer types",
              .note =
                  "The coordinator's steps by kind of layer; the rows of a phase add up to its us_per_step. wait: the part of "
                  "it that waits for other ranks. draft: all that guesses what follows, the MTP layer with its experts among "
                  "it; vision: "
                  "pictures between the rows of a step." +
                  device_note(input, "With a GPU: its time, and the host's, with its waits, while the GPU had nothing to do."),
              .columns = {{"layer_type"},
                          {"phase"},
                          {"count_per_step", 1},
                          {"us_per_step", 3},
                          {"us_each", 3},
                          {"step_share", 4},
                          {"wait_us", 3}}};
  const Timeline& timeline = input.timeline;
  struct TypeTime {
    int64_t self = 0, wait = 0;
  };
  const std::vector<std::string> groups = step_groups(timeline);
  std::vector<std::array<TypeTime, kLayerTypes.size()>> times(groups.size());
  std::vector<int64_t> group_ns(groups.size(), 0);
  for (const StepInfo& step : timeline.steps) group_ns[group_index(step)] += step.end_ns - step.begin_ns;
  SliceTypes types;
  for_each_step_slice(timeline, [&](std::size_t step, const Slice& slice) {
    TypeTime& time = times[group_index(timeline.steps[step])].at(index_of_type(types.of(slice)));
    time.self += slice.self_ns;
    if (kind_of(slice) == ZoneKind::kWait) time.wait += slice.self_ns;
  });
  const auto counts = count_steps(timeline);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t t = 0; t < kLayerTypes.size(); ++t) {
      const TypeTime& time = times[g][t];
      if (counts[g] == 0 || time.self == 0) continue;
      const auto steps = static_cast<double>(counts[g]);
      const auto layers = static_cast<double>(count_of_type(input.capture.info.model, kLayerTypes[t]));
      Table::Cell count, us_each;
      if (layers > 0) {
        count = layers;
        us_each = to_us(time.self) / steps / layers;
      }
      table.rows.push_back({kLayerTypes[t], groups[g], count, to_us(time.self) / steps, us_each,
                            static_cast<double>(time.self) / static_cast<double>(group_ns[g]), to_us(time.wait) / steps});
    }
  }
  return table;
}

}  // namespace ferry
