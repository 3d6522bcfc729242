#include "runtime/actions/step_groups.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

/// Neighbouring steps are alike in what disturbs them, so parts of the run are compared, not steps.
double noise_of(const StepGroup& group, std::span<const ReplayedStep> steps) {
  constexpr std::size_t kParts = 20;
  const std::size_t num_parts = std::min(kParts, group.steps.size());
  std::vector<double> per_row(num_parts, 0), rows(num_parts, 0);
  for (std::size_t i = 0; i < group.steps.size(); ++i) {
    const ReplayedStep& step = steps[group.steps[i]];
    per_row[i * num_parts / group.steps.size()] += step.parts.sum();
    rows[i * num_parts / group.steps.size()] += 1;
  }
  double mean = 0, square = 0;
  for (std::size_t p = 0; p < num_parts; ++p) {
    per_row[p] /= rows[p];
    mean += per_row[p] / static_cast<double>(num_parts);
  }
  for (const double x : per_row) square += (x - mean) * (x - mean);
  const auto n = static_cast<double>(num_parts);
  return mean > 0 && n > 1 ? std::sqrt(square / (n - 1) / n) / mean : 1;
}

}  // namespace

std::vector<StepGroup> find_step_groups(const ReportInput& input, std::span<const ReplayedStep> steps) {
  constexpr std::size_t kFewest = 5;
  const Timeline& timeline = input.timeline;
  const std::vector<std::string> names = step_groups(timeline);
  std::map<std::size_t, StepGroup> groups;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepInfo& step = timeline.steps[steps[i].index];
    const bool is_decode = steps[i].prefill_rows == 0;
    if (step.phase == Phase::kMixed || steps[i].rows() == 0) continue;
    if (step.section >= 0) {
      const SectionInfo& section = timeline.sections[static_cast<std::size_t>(step.section)];
      // A section that measures decoding has the prompts of its sequences, too.
      if (section.role != SectionRole::kMeasured || (section.phase == Phase::kDecode) != is_decode) continue;
    }
    StepGroup& group = groups[group_index(step)];
    group.is_decode = is_decode;
    group.steps.push_back(i);
    group.seconds += steps[i].parts.sum();
    group.tokens += static_cast<double>(step.num_useful());
  }
  std::vector<StepGroup> list;
  for (auto& [index, group] : groups) {
    if (group.steps.size() < kFewest || group.seconds <= 0) continue;
    group.metric = names[index] + " tokens/s";
    group.noise = noise_of(group, steps);
    list.push_back(std::move(group));
  }
  std::ranges::stable_sort(list, [](const StepGroup& a, const StepGroup& b) { return a.seconds > b.seconds; });
  return list;
}

}  // namespace ferry
