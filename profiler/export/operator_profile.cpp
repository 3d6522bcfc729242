#include "profiler/export/operator_profile.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/export/pprof.h"
#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

/// What a slice's stack is made of, outermost first.
struct Place {
  int32_t rank = 0;
  int32_t phase = -1;  // index into kPhases; -1: in no step that the capture knows
  int16_t layer = kNoLayer;
  Zone zone = Zone::kStep;

  friend auto operator<=>(const Place&, const Place&) = default;
};

struct Amount {
  int64_t ns = 0, count = 0;
};

/// As the operator table has it: a pool thread's share is its operator's already, and what is handed over is the device's.
bool is_operator(const Slice& slice) {
  const ZoneKind kind = zone_info(slice.zone).kind;
  return (kind == ZoneKind::kCompute || kind == ZoneKind::kHost) && slice.zone != Zone::kPoolTask && !slice.is_handed_over;
}

std::map<Place, Amount> add_up(const Timeline& timeline) {
  const StepIndex index(timeline);
  std::map<Place, Amount> amounts;
  for (const Slice& slice : timeline.slices) {
    if (!is_operator(slice)) continue;
    const int32_t step = index.find(slice.step);
    const int32_t phase = step < 0 ? -1 : static_cast<int32_t>(phase_index(timeline.steps[static_cast<std::size_t>(step)]));
    const int32_t rank = timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    Amount& amount = amounts[{rank, phase, slice.layer, slice.zone}];
    amount.ns += slice.self_ns;
    amount.count += slice.is_continued ? 0 : 1;
  }
  return amounts;
}

/// The profile's frames, each once.
class Frames {
 public:
  explicit Frames(Profile& profile) : profile_(profile) {}

  int32_t index_of(std::string name, std::string_view file) {
    const auto [known, is_new] = indices_.try_emplace({std::move(name), file}, static_cast<int32_t>(profile_.frames.size()));
    if (is_new) profile_.frames.push_back({.name = known->first.first, .file = std::string(file)});
    return known->second;
  }

 private:
  Profile& profile_;
  std::map<std::pair<std::string, std::string_view>, int32_t> indices_;
};

std::string layer_type(const ModelFacts& model, int16_t layer) {
  if (layer == kNoLayer) return "outside of layers";
  const auto l = static_cast<std::size_t>(layer);
  return l < model.layer_types.size() ? model.layer_types[l] : "unknown";
}

}  // namespace

std::string encode_operator_profile(const ReportInput& input) {
  const CaptureInfo& info = input.capture.info;
  Profile profile{.values = {{"time", "nanoseconds"}, {"operators", "count"}},
                  .program = "ferry",
                  .remarks = {"Ferry " + info.version + ", model " + info.model.name,
                              "Own time of operators and of the host's work, waits excluded."},
                  .begin_epoch_ns = info.start_epoch_ns,
                  .duration_ns = total(find_recorded(input))};
  Frames frames(profile);
  for (const auto& [place, amount] : add_up(input.timeline)) {
    const ZoneInfo& zone = zone_info(place.zone);
    const char* const phase = place.phase < 0 ? "outside of steps" : phase_name(kPhases[static_cast<std::size_t>(place.phase)]);
    profile.samples.push_back({{frames.index_of(zone.name, "operator"), frames.index_of(part_name(zone.part), "part"),
                                frames.index_of(layer_type(info.model, place.layer), "layer type"),
                                frames.index_of(phase, "phase"), frames.index_of("rank " + std::to_string(place.rank), "rank")},
                               {amount.ns, amount.count}});
  }
  return encode_profile(profile);
}

}  // namespace ferry
