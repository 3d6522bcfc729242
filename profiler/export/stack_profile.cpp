#include "profiler/export/stack_profile.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "profiler/export/pprof.h"
#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/stacks/stack_times.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

/// The frames of all ranks, each once: name, and the module or what else it is.
class FrameTable {
 public:
  int32_t index_of(const std::string& name, const std::string& file) {
    const auto [known, is_new] = indices_.try_emplace({name, file}, static_cast<int32_t>(frames_.size()));
    if (is_new) frames_.push_back({name, file});
    return known->second;
  }
  /// Of a stack's functions, the innermost first.
  std::vector<int32_t> indices_of(const StackCapture& stacks, uint32_t stack) {
    std::vector<int32_t> indices;
    for (const uint32_t frame : stacks.stacks[stack])
      indices.push_back(index_of(stacks.frames[frame].function, stacks.frames[frame].module));
    return indices;
  }
  const std::vector<std::pair<std::string, std::string>>& frames() const { return frames_; }

 private:
  std::vector<std::pair<std::string, std::string>> frames_;
  std::map<std::pair<std::string, std::string>, int32_t> indices_;
};

}  // namespace

std::string encode_stack_profile(const ReportInput& input) {
  const CaptureInfo& info = input.capture.info;
  Profile profile{.values = {{"samples", "count"}, {"cpu", "nanoseconds"}},
                  .shown_value = 1,
                  .program = "ferry",
                  .remarks = {"Ferry " + info.version + ", model " + info.model.name},
                  .begin_epoch_ns = info.start_epoch_ns,
                  .duration_ns = total(find_recorded(input)),
                  .period_type = {"cpu", "nanoseconds"}};
  if (const std::string missing = missing_stacks(input); !missing.empty()) profile.remarks.push_back("Missing: " + missing);
  FrameTable table;
  for (const StackTime& time : find_stack_times(input)) {
    const StackCapture& stacks = input.capture.ranks[time.at].stacks;
    std::vector<int32_t> frames = table.indices_of(stacks, time.stack);
    frames.push_back(table.index_of(stack_phase_name(time.phase), "phase"));
    frames.push_back(table.index_of("rank " + std::to_string(time.rank), "rank"));
    profile.samples.push_back({std::move(frames), {time.samples, time.ns}});
    profile.period = stacks.period_ns;
  }
  for (const auto& [name, file] : table.frames()) profile.frames.push_back({.name = name, .file = file});
  return encode_profile(profile);
}

void write_speedscope(const ReportInput& input, std::ostream& out) {
  FrameTable table;
  ordered_json profiles = ordered_json::array();
  std::pair<int32_t, int32_t> last{-1, -2};  // rank and phase
  for (const StackTime& time : find_stack_times(input)) {
    if (std::exchange(last, {time.rank, time.phase}) != std::pair(time.rank, time.phase))
      profiles.push_back({{"type", "sampled"},
                          {"name", "rank " + std::to_string(time.rank) + ", " + stack_phase_name(time.phase)},
                          {"unit", "nanoseconds"},
                          {"startValue", 0},
                          {"endValue", 0},
                          {"samples", ordered_json::array()},
                          {"weights", ordered_json::array()}});
    ordered_json& profile = profiles.back();
    std::vector<int32_t> frames = table.indices_of(input.capture.ranks[time.at].stacks, time.stack);
    profile["samples"].push_back(std::vector<int32_t>(frames.rbegin(), frames.rend()));  // there the outermost is first
    profile["weights"].push_back(time.ns);
    profile["endValue"] = profile["endValue"].get<int64_t>() + time.ns;
  }
  ordered_json frames = ordered_json::array();
  for (const auto& [name, file] : table.frames()) frames.push_back({{"name", name}, {"file", file}});
  const ordered_json document = {{"$schema", "https://www.speedscope.app/file-format-schema.json"},
                                 {"shared", {{"frames", std::move(frames)}}},
                                 {"profiles", std::move(profiles)},
                                 {"name", "Ferry: " + input.capture.info.model.name},
                                 {"exporter", "ferry " + input.capture.info.version}};
  out << document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace ferry
