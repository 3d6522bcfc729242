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

std::optional<std::string> describe_left_out(const RankCapture& rank) {
  const uint64_t count = rank.counters.num_threads_left_out;
  if (count == 0) return std::nullopt;
  return "left out: " + std::to_string(count) + (count == 1 ? " thread" : " threads") + ": their files would be too many";
}

std::string describe_uncounted(const std::vector<RankCapture>& ranks) {
  std::vector<std::pair<std::string, std::vector<int32_t>>> ranks_by_reason;
  std::size_t num_counting = 0;
  for (const RankCapture& rank : ranks) {
    if (!rank.counters.sources.empty()) ++num_counting;
    std::vector<std::string> reasons = describe_absent(rank, Counter::kCycles, Counter::kPlatformEnergy);
    if (std::optional<std::string> left_out = describe_left_out(rank)) reasons.push_back(*std::move(left_out));
    for (std::string& reason : reasons) {
      const auto same = std::ranges::find(ranks_by_reason, reason, &std::pair<std::string, std::vector<int32_t>>::first);
      if (same == ranks_by_reason.end()) {
        ranks_by_reason.emplace_back(std::move(reason), std::vector{rank.rank});
      } else {
        same->second.push_back(rank.rank);
      }
    }
  }
  std::string line;
  for (const auto& [reason, of] : ranks_by_reason) {
    line += (line.empty() ? "" : "; ") + reason;
    if (of.size() == num_counting) continue;
    for (std::size_t r = 0; r < of.size(); ++r)
      line += (r > 0 ? ", " : of.size() == 1 ? " (rank " : " (ranks ") + std::to_string(of[r]);
    line += ")";
  }
  return line;
}

}  // namespace ferry
