#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/kernel_groups.h"
#include "profiler/report/views/layer_names.h"
#include "profiler/report/views/layer_types.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

struct Kernel {
  Slice slice;
  int32_t rank = 0;
  bool is_on_device = false;
  const char* layer_type = "";
};

const char* kind_of_kernel(const Kernel& kernel) {
  if (kernel.is_on_device) return "device";
  switch (kind_of(kernel.slice)) {
    case ZoneKind::kCompute: return "compute";
    case ZoneKind::kWait: return "wait";
    default: return "host";
  }
}

/// What the typical steps are made of, by time.
class StepKernels {
 public:
  StepKernels(const ReportInput& input, const std::vector<KernelGroup>& groups) : timeline_(input.timeline) {
    for (const KernelGroup& group : groups) kernels_[group.typical];
    add_coordinator();
    add_workers();
    for (auto& [step, kernels] : kernels_) {
      std::ranges::stable_sort(kernels, {}, [](const Kernel& kernel) {
        return std::tuple(kernel.slice.begin_ns, kernel.rank, -kernel.slice.end_ns);
      });
    }
  }

  const std::vector<Kernel>& of(int32_t step) const { return kernels_.at(step); }

 private:
  bool is_on_device(const Slice& slice) const {
    return timeline_.lanes[static_cast<std::size_t>(slice.lane)].kind == Lane::Kind::kDevice;
  }

  /// Of a thread beside a device only that in which the device had nothing to do.
  void add_coordinator() {
    SliceTypes types;
    const bool has_device = has_device_lane(timeline_, 0);
    for_each_step_slice(timeline_, [&](std::size_t step, const Slice& slice) {
      const char* const type = types.of(slice);
      const auto found = kernels_.find(static_cast<int32_t>(step));
      if (found == kernels_.end() || slice.zone == Zone::kStep) return;
      if (has_device && !is_on_device(slice) && slice.self_ns == 0) return;
      found->second.push_back({slice, 0, is_on_device(slice), type});
    });
  }

  /// Their experts' operators, of the step's exchanges.
  void add_workers() {
    const StepIndex index(timeline_);
    for (const Slice& slice : timeline_.slices) {
      const Lane& lane = timeline_.lanes[static_cast<std::size_t>(slice.lane)];
      const ZoneInfo& zone = zone_info(slice.zone);
      if (lane.rank == 0 || zone.kind != ZoneKind::kCompute || zone.part != Part::kExperts || slice.is_handed_over) continue;
      const auto found = kernels_.find(index.find(slice.step));
      if (found != kernels_.end()) found->second.push_back({slice, lane.rank, is_on_device(slice), layer_type_of(slice.zone)});
    }
  }

  const Timeline& timeline_;
  std::map<int32_t, std::vector<Kernel>> kernels_;  // by index of the step
};

/// Time in which a rank recorded nothing before a kernel: since the one before it, or the step's begin. A worker's, since the
/// one before it of the same exchange, as between exchanges it waits for rows.
class Gaps {
 public:
  explicit Gaps(int64_t step_begin_ns) : until_ns_(step_begin_ns) {}

  Table::Cell before(const Kernel& kernel) {
    if (kernel.rank == 0) return us_cell(std::max<int64_t>(pass(until_ns_, kernel.slice), 0));
    const auto [until, is_first] = workers_.try_emplace({kernel.rank, exchange_of(kernel.slice)}, kernel.slice.end_ns);
    if (is_first) return {};
    return us_cell(std::max<int64_t>(pass(until->second, kernel.slice), 0));
  }

 private:
  static int64_t pass(int64_t& until_ns, const Slice& slice) {
    const int64_t gap_ns = slice.begin_ns - until_ns;
    until_ns = std::max(until_ns, slice.end_ns);
    return gap_ns;
  }

  int64_t until_ns_;
  std::map<std::pair<int32_t, ExchangeId>, int64_t> workers_;
};

/// Own time of an operator; of a device's with what continues it.
int64_t own_ns(const std::vector<Kernel>& kernels, std::size_t at) {
  const Kernel& kernel = kernels[at];
  int64_t ns = kernel.slice.self_ns;
  for (std::size_t i = at + 1; kernel.is_on_device && i < kernels.size(); ++i) {
    const Slice& next = kernels[i].slice;
    if (next.lane != kernel.slice.lane || next.zone != kernel.slice.zone) continue;
    if (!next.is_continued) break;
    ns += next.self_ns;
  }
  return ns;
}

/// Amount a nanosecond, which is G a second; empty if it is not known.
Table::Cell rate(double amount, int64_t ns) { return cell_if(amount > 0 && ns > 0, amount / static_cast<double>(ns)); }

void add_step(const ReportInput& input, const KernelGroup& group, const std::vector<Kernel>& kernels, Table& table) {
  const StepInfo& step = input.timeline.steps[static_cast<std::size_t>(group.typical)];
  const std::vector<std::string>& layer_types = input.capture.info.model.layer_types;
  const auto length_ns = static_cast<double>(step.end_ns - step.begin_ns);
  Gaps gaps(step.begin_ns);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& kernel = kernels[i];
    const Slice& slice = kernel.slice;
    const ZoneInfo& zone = zone_info(slice.zone);
    const OperatorFacts* facts = zone.kind == ZoneKind::kCompute && !slice.is_handed_over && !slice.is_continued
                                     ? find_operator(input.capture.info.model.operators, slice.zone)
                                     : nullptr;
    const SpanCounts counts =
        facts != nullptr ? facts->counts(slice.a, slice.b, std::max<int64_t>(step.num_sequences, 1)) : SpanCounts{};
    Table::Cell layer, rows;
    if (slice.layer != kNoLayer) layer = int64_t{slice.layer};
    if (std::string_view(zone.a_name) == "rows") rows = int64_t{slice.a};
    const int64_t ns = own_ns(kernels, i);
    table.rows.push_back(
        {group.name, int64_t{step.step}, static_cast<int64_t>(i) + 1, us_cell(slice.begin_ns - step.begin_ns),
         us_cell(slice.duration_ns()), us_cell(slice.self_ns), gaps.before(kernel), layer,
         model_name_of(slice.zone, slice.layer, layer_types), kernel.layer_type, part_name(zone.part), zone.name,
         kind_of_kernel(kernel), rows, int64_t{kernel.rank}, rate(facts != nullptr ? facts->flop.of(counts) : 0, ns),
         rate(facts != nullptr ? facts->bytes.of(counts) : 0, ns), static_cast<double>(slice.self_ns) / length_ns});
  }
}

/// "decode ×4: step 12 (4.970 ms), the median of 5".
std::string tell_choice(const Timeline& timeline, const KernelGroup& group) {
  const StepInfo& step = timeline.steps[static_cast<std::size_t>(group.typical)];
  char text[96];
  std::snprintf(text, sizeof text, ": step %u (%.3f ms), the median of %zu", step.step,
                static_cast<double>(step.end_ns - step.begin_ns) / 1e6, group.steps.size());
  return group.name + text;
}

}  // namespace

Table make_kernel_view(const ReportInput& input) {
  const std::vector<KernelGroup> groups = find_kernel_groups(input.timeline);
  Table table{
      .id = "kernel",
      .title = "Kernels of a step",
      .note =
          "A typical step of prefill, decode, and decode with drafts to verify, in the order of time: the one whose "
          "length is the median. Shown are operators, host work and waits of the coordinator (self_us and gap_us of "
          "rank 0, with what follows the last of them, add up to the step), and the experts' operators of its workers "
          "at their times. gap_us: nothing is recorded right before it; of a worker, within one exchange. FLOP and "
          "bytes are what shapes need at least. share: self_us of the step's length." +
          device_note(input, "Kind device: by the GPU's timestamps; of the host only what the GPU had nothing to do in."),
      .columns = {{"phase"},
                  {"step"},
                  {"order"},
                  {"start_us", 3},
                  {"duration_us", 3},
                  {"self_us", 3},
                  {"gap_us", 3},
                  {"layer"},
                  {"layer_name"},
                  {"layer_type"},
                  {"part"},
                  {"kernel"},
                  {"kind"},
                  {"rows"},
                  {"rank"},
                  {"gflop_per_s", 2},
                  {"gb_per_s", 2},
                  {"share", 4}}};
  const StepKernels kernels(input, groups);
  std::string choices;
  for (const KernelGroup& group : groups) {
    choices += (choices.empty() ? " " : "; ") + tell_choice(input.timeline, group);
    add_step(input, group, kernels.of(group.typical), table);
  }
  if (!choices.empty()) table.note += choices + ".";
  return table;
}

}  // namespace ferry
