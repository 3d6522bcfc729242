#include "profiler/report/views/counter_sums.h"

#include <algorithm>
#include <utility>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {

void CounterSums::add(const CounterReading& reading, double share, double covered_ns) {
  ns += covered_ns;
  is_scaled = is_scaled || reading.is_scaled;
  for (std::size_t c = 0; c < kNumCounters; ++c) {
    if (reading.values[c] == kNotCounted) continue;
    is_known[c] = true;
    values[c] += static_cast<double>(reading.values[c]) * share;
  }
}

std::vector<std::string> counter_groups(const Timeline& timeline) {
  std::vector<std::string> groups = step_groups(timeline);
  groups.emplace_back("outside of steps");
  return groups;
}

void add_reading(const ReportInput& input, const RankCapture& rank, const CounterReading& reading, CounterGroups& groups) {
  const Timeline& timeline = input.timeline;
  const int64_t begin_ns = timeline.to_ns(rank, reading.begin), end_ns = timeline.to_ns(rank, reading.end);
  const auto length = static_cast<double>(std::max<int64_t>(end_ns - begin_ns, 0));
  CounterSums& outside = groups.back();
  if (reading.zone != Zone::kStep) {
    const int32_t step = StepIndex(timeline).find(reading.step);
    const bool is_known = step >= 0;
    CounterSums& sums = is_known ? groups[group_index(timeline.steps[static_cast<std::size_t>(step)])] : outside;
    return sums.add(reading, 1, length);
  }
  auto step = std::ranges::partition_point(timeline.steps, [&](const StepInfo& one) { return one.end_ns <= begin_ns; });
  double left = length;
  for (; step != timeline.steps.end() && step->begin_ns < end_ns; ++step) {
    const auto shared = static_cast<double>(std::min(end_ns, step->end_ns) - std::max(begin_ns, step->begin_ns));
    groups[group_index(*step)].add(reading, shared / length, shared);
    left -= shared;
  }
  if (left > 0) outside.add(reading, left / length, left);
}

std::vector<std::string> describe_absent(const RankCapture& rank, Counter first, Counter last) {
  std::vector<std::pair<std::string, std::string>> names_by_reason;
  for (const CounterSource& source : rank.counters.sources) {
    if (!source.source.empty() || source.counter < first || source.counter > last) continue;
    const char* name = kCounters[static_cast<std::size_t>(source.counter)].name;
    const auto same = std::ranges::find(names_by_reason, source.absent, &std::pair<std::string, std::string>::first);
    if (same == names_by_reason.end()) {
      names_by_reason.emplace_back(source.absent, name);
    } else {
      same->second += std::string(", ") + name;
    }
  }
  std::vector<std::string> said;
  for (const auto& [reason, names] : names_by_reason) said.push_back("absent: " + names + ": " + reason);
  return said;
}

}  // namespace ferry
