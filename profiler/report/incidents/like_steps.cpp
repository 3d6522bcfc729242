#include "profiler/report/incidents/like_steps.h"

#include <algorithm>
#include <cmath>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

int bucket_of(int64_t count) {
  constexpr int64_t kExact = 8;
  if (count <= kExact) return static_cast<int>(count);
  return static_cast<int>(8 * std::log2(static_cast<double>(count) / kExact)) + static_cast<int>(kExact) + 1;
}

}  // namespace

StepSort sort_of(const StepInfo& step) {
  return {group_index(step), bucket_of(step.num_tokens), bucket_of(step.num_sequences)};
}

LikeSteps::LikeSteps(const Timeline& timeline, const std::vector<Incident>& incidents, bool is_whole)
    : timeline_(timeline), incidents_(incidents) {
  if (!is_whole) return;
  std::size_t next = 0;
  for (std::size_t s = 0; s < timeline.steps.size(); ++s) {
    while (next < incidents.size() && incidents[next].last_step <= s) ++next;
    if (next < incidents.size() && incidents[next].first_step <= s) continue;
    quiet_[sort_of(timeline.steps[s])].push_back(s);
  }
}

std::size_t LikeSteps::begin_of_quiet_before(std::size_t incident) const {
  return incident == 0 ? 0 : incidents_[incident - 1].last_step;
}

std::size_t LikeSteps::end_of_quiet_after(std::size_t incident) const {
  return incident + 1 < incidents_.size() ? incidents_[incident + 1].first_step : timeline_.steps.size();
}

std::vector<std::size_t> LikeSteps::between(const StepSort& sort, std::size_t first, std::size_t last) const {
  const auto found = quiet_.find(sort);
  if (found == quiet_.end()) return {};
  return {std::ranges::lower_bound(found->second, first), std::ranges::lower_bound(found->second, last)};
}

std::vector<double> LikeSteps::lengths(const std::vector<std::size_t>& steps) const {
  std::vector<double> found;
  found.reserve(steps.size());
  for (const std::size_t s : steps)
    found.push_back(static_cast<double>(timeline_.steps[s].end_ns - timeline_.steps[s].begin_ns));
  return found;
}

std::vector<double> LikeSteps::before(std::size_t incident, const StepSort& sort) const {
  std::vector<std::size_t> steps = between(sort, begin_of_quiet_before(incident), incidents_[incident].first_step);
  if (steps.size() > kMost) steps.erase(steps.begin(), steps.end() - kMost);
  return lengths(steps);
}

std::vector<double> LikeSteps::after(std::size_t incident, const StepSort& sort) const {
  std::vector<std::size_t> steps = between(sort, incidents_[incident].last_step, end_of_quiet_after(incident));
  if (steps.size() > kMost) steps.resize(kMost);
  return lengths(steps);
}

std::vector<double> LikeSteps::beside(std::size_t incident, const StepSort& sort) const {
  std::vector<double> just_before = before(incident, sort);
  if (just_before.size() >= kFewest) return just_before;
  std::vector<std::size_t> steps = between(sort, 0, timeline_.steps.size());
  const std::size_t first = incidents_[incident].first_step, last = incidents_[incident].last_step;
  const auto distance = [&](std::size_t s) { return s < first ? first - s : s - last + 1; };
  std::ranges::stable_sort(steps, {}, distance);
  if (steps.size() > kMost) steps.resize(kMost);
  return lengths(steps);
}

std::vector<StepSort> LikeSteps::sorts_after(std::size_t incident) const {
  std::vector<StepSort> sorts;
  for (const auto& [sort, steps] : quiet_) {
    if (!between(sort, incidents_[incident].last_step, end_of_quiet_after(incident)).empty()) sorts.push_back(sort);
  }
  return sorts;
}

}  // namespace ferry
