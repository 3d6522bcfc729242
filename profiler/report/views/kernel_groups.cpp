#include "profiler/report/views/kernel_groups.h"

#include <algorithm>
#include <map>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

bool is_shown(const Timeline& timeline, const StepInfo& step) {
  if (step.phase != Phase::kPrefill && step.phase != Phase::kDecode) return false;
  return step.section < 0 || timeline.sections[static_cast<std::size_t>(step.section)].role != SectionRole::kWarmUp;
}

std::string group_name(const Timeline& timeline, std::size_t group, bool has_drafts) {
  const std::string name = step_groups(timeline)[group];
  if (!has_drafts) return name;
  if (group < kNumPhases) return "draft-verify";
  return "draft-verify ×" + std::to_string(timeline.sections[group - kNumPhases].size);
}

int32_t find_typical(const Timeline& timeline, std::vector<int32_t> steps) {
  const auto length = [&](int32_t step) {
    const StepInfo& info = timeline.steps[static_cast<std::size_t>(step)];
    return info.end_ns - info.begin_ns;
  };
  std::ranges::stable_sort(steps, {}, length);
  return steps[(steps.size() - 1) / 2];
}

}  // namespace

std::vector<KernelGroup> find_kernel_groups(const Timeline& timeline) {
  std::map<std::pair<std::size_t, bool>, std::vector<int32_t>> groups;  // by group, and whether drafts are tried
  for (std::size_t s = 0; s < timeline.steps.size(); ++s) {
    const StepInfo& step = timeline.steps[s];
    if (is_shown(timeline, step)) groups[{group_index(step), step.num_drafts > 0}].push_back(static_cast<int32_t>(s));
  }
  std::vector<KernelGroup> found;
  for (auto& [key, steps] : groups) {
    const int32_t typical = find_typical(timeline, steps);
    found.push_back({group_name(timeline, key.first, key.second), std::move(steps), typical});
  }
  return found;
}

}  // namespace ferry
