#include "profiler/report/stacks/stack_times.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

int64_t on_coordinator(const RankCapture& rank, uint64_t ticks) {
  return rank.alignment.to_coordinator_ns(rank.ticks.to_ns(ticks));
}

/// The capture's first moment, from which the timeline counts.
int64_t find_origin(const Capture& capture) {
  int64_t origin = INT64_MAX;
  for (const RankCapture& rank : capture.ranks) origin = std::min(origin, on_coordinator(rank, rank.begin));
  return origin;
}

/// The phase of the step at that time; -1: there is none.
int32_t phase_at(const Timeline& timeline, int64_t ns) {
  const auto next = std::ranges::upper_bound(timeline.steps, ns, {}, &StepInfo::begin_ns);
  if (next == timeline.steps.begin()) return -1;
  const StepInfo& step = *std::prev(next);
  return ns < step.end_ns ? static_cast<int32_t>(phase_index(step)) : -1;
}

constexpr int64_t kCoarse = 3;

int64_t periods_a_sample(const StackCapture& stacks) {
  int64_t periods = 0;
  for (const StackSample& sample : stacks.samples) periods += sample.periods;
  return stacks.samples.empty() ? 0 : periods / std::ssize(stacks.samples);
}

}  // namespace

std::vector<StackTime> find_stack_times(const ReportInput& input) {
  const int64_t origin = find_origin(input.capture);
  std::vector<StackTime> times;
  for (std::size_t at = 0; at < input.capture.ranks.size(); ++at) {
    const RankCapture& rank = input.capture.ranks[at];
    std::map<std::pair<int32_t, uint32_t>, std::pair<int64_t, int64_t>> sums;  // phase and stack: periods and samples
    for (const StackSample& sample : rank.stacks.samples) {
      auto& [periods, samples] = sums[{phase_at(input.timeline, on_coordinator(rank, sample.ticks) - origin), sample.stack}];
      periods += sample.periods;
      ++samples;
    }
    for (const auto& [key, sum] : sums)
      times.push_back({rank.rank, at, key.first, key.second, sum.first * rank.stacks.period_ns, sum.second});
  }
  return times;
}

const char* stack_phase_name(int32_t phase) {
  return phase < 0 ? "outside" : phase_name(kPhases[static_cast<std::size_t>(phase)]);
}

bool has_stacks(const ReportInput& input) {
  return std::ranges::any_of(input.capture.ranks, [](const RankCapture& rank) { return rank.stacks != StackCapture{}; });
}

std::string missing_stacks(const ReportInput& input) {
  std::string text;
  const auto add = [&](const RankCapture& rank, const std::string& what) {
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank.rank) + ": " + what;
  };
  for (const RankCapture& rank : input.capture.ranks) {
    if (!rank.stacks.absent.empty()) add(rank, rank.stacks.absent);
    if (rank.stacks.num_lost > 0) add(rank, std::to_string(rank.stacks.num_lost) + " samples lost");
    if (const int64_t periods = periods_a_sample(rank.stacks); periods >= kCoarse)
      add(rank, "a sample stands for " + std::to_string(periods) + " periods, as cores were short: small shares are chance");
  }
  return text;
}

}  // namespace ferry
