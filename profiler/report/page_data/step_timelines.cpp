#include "profiler/report/page_data/step_timelines.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "profiler/report/page_data/packing.h"
#include "profiler/report/page_data/step_columns.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxMisses = 16;        // steps in a row that do not fit: then the page is full
constexpr std::size_t kStepFactsBytes = 200;  // a step's JSON beside its data, at most

const char* kind_name(ZoneKind kind) {
  switch (kind) {
    case ZoneKind::kStep: return "step";
    case ZoneKind::kCompute: return "compute";
    case ZoneKind::kHost: return "host";
    case ZoneKind::kWait: return "wait";
    case ZoneKind::kTransfer: return "transfer";
    case ZoneKind::kRequest: return "request";
    case ZoneKind::kCounter: return "counter";
    case ZoneKind::kSection: return "section";
  }
  return "";
}

const char* kind_name(Lane::Kind kind) {
  switch (kind) {
    case Lane::Kind::kThread: return "thread";
    case Lane::Kind::kDevice: return "device";
    case Lane::Kind::kTransfer: return "transfer";
    case Lane::Kind::kRequest: return "request";
  }
  return "";
}

ordered_json list_zones() {
  ordered_json zones = ordered_json::array();
  for (const ZoneInfo& zone : kZones)
    zones.push_back({zone.name, kind_name(zone.kind), part_name(zone.part), zone.a_name, zone.b_name});
  return zones;
}

ordered_json list_lanes(const Timeline& timeline, const std::vector<int32_t>& indices) {
  ordered_json lanes = ordered_json::array();
  for (const int32_t l : indices) {
    const Lane& lane = timeline.lanes[static_cast<std::size_t>(l)];
    lanes.push_back({lane.rank, kind_name(lane.kind), lane.name});
  }
  return lanes;
}

/// By index into timeline.steps, so in the order of time.
std::map<std::size_t, ordered_json> pack_steps(const ReportInput& input, const StepColumns& columns,
                                               const std::vector<ChosenStep>& chosen, std::size_t max_bytes) {
  const std::vector<std::string> groups = step_groups(input.timeline);
  std::map<std::size_t, ordered_json> packed;
  std::size_t total = 0, misses = 0;
  for (const auto& [s, why] : chosen) {
    if (misses == kMaxMisses) break;
    const StepInfo& step = input.timeline.steps[s];
    std::string data = encode_base64(deflate_bytes(columns.pack(s)));
    if (total + data.size() + kStepFactsBytes > max_bytes) {
      ++misses;
      continue;
    }
    misses = 0;
    total += data.size() + kStepFactsBytes;
    packed[s] = {{"step", step.step},
                 {"group", groups[group_index(step)]},
                 {"why", why},
                 {"begin_ns", step.begin_ns},
                 {"length_ns", step.end_ns - step.begin_ns},
                 {"tokens", step.num_tokens},
                 {"sequences", step.num_sequences},
                 {"slices", columns.count_slices(s)},
                 {"data", std::move(data)}};
  }
  return packed;
}

}  // namespace

ordered_json make_step_timelines(const ReportInput& input, const std::vector<Finding>& findings, StepRange wanted,
                                 std::size_t max_bytes) {
  const std::vector<int32_t> telling = find_telling_steps(input, findings);
  const StepColumns columns(input);
  std::map<std::size_t, ordered_json> packed = pack_steps(input, columns, rank_steps(input, telling, wanted), max_bytes);
  const bool is_all = packed.size() == input.timeline.steps.size();
  ordered_json steps = ordered_json::array(), finding_steps = ordered_json::array();
  for (auto& [s, step] : packed) {
    if (is_all) step["why"] = "";
    steps.push_back(std::move(step));
  }
  for (const int32_t step : telling) {
    if (step < 0)
      finding_steps.push_back(nullptr);
    else
      finding_steps.push_back(input.timeline.steps[static_cast<std::size_t>(step)].step);
  }
  const int32_t opening = find_opening_step(input.timeline);
  ordered_json opening_step = nullptr;
  if (opening >= 0) opening_step = input.timeline.steps[static_cast<std::size_t>(opening)].step;
  ordered_json path_kinds = ordered_json::array();
  for (int kind = 0; kind <= static_cast<int>(PathKind::kNotRunning); ++kind)
    path_kinds.push_back(path_kind_name(static_cast<PathKind>(kind)));
  return {{"num_steps", input.timeline.steps.size()},
          {"zones", list_zones()},
          {"path_kinds", std::move(path_kinds)},
          {"lanes", list_lanes(input.timeline, columns.lanes())},
          {"steps", std::move(steps)},
          {"finding_steps", std::move(finding_steps)},
          {"opening_step", std::move(opening_step)}};
}

}  // namespace ferry
