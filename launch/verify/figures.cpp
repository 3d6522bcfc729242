#include "launch/verify/figures.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

constexpr std::string_view kRate = " tokens/s", kTime = " ms a step";
constexpr const char *kAllRate = "tokens/s", *kGenerated = "generated tokens/s";

using Steps = std::vector<std::size_t>;  // indices into timeline.steps, ascending

double difference(double first, double second) { return first > 0 && second > 0 ? std::abs(second / first - 1) : 0; }

/// Blocks of nearly as many items each, in order: [first, last).
std::vector<std::pair<std::size_t, std::size_t>> split_blocks(std::size_t num_items) {
  const std::size_t num_blocks = std::min(num_items, Figure::kBlocks);
  std::vector<std::pair<std::size_t, std::size_t>> blocks;
  for (std::size_t b = 0; b < num_blocks; ++b)
    blocks.emplace_back(b * num_items / num_blocks, (b + 1) * num_items / num_blocks);
  return blocks;
}

/// Standard error of the mean as a share of it, by the method of batch means: what the quarters of a run differ by holds a
/// machine's changes of speed that last longer than a block.
double error_of_quarters(const std::vector<double>& samples) {
  constexpr std::size_t kQuarters = 4;
  if (samples.size() < kQuarters) return 0;
  std::vector<double> means;
  for (std::size_t q = 0; q < kQuarters; ++q) {
    const auto at = [&](std::size_t quarter) {
      return samples.begin() + static_cast<std::ptrdiff_t>(quarter * samples.size() / kQuarters);
    };
    means.push_back(mean(std::vector<double>(at(q), at(q + 1))));
  }
  const double all = mean(means);
  double squares = 0;
  for (const double quarter : means) squares += (quarter - all) * (quarter - all);
  return std::sqrt(squares / (kQuarters - 1) / kQuarters) / all;
}

/// The figure of some of the items, named by their places; 0 where it has none.
template <class Of>
Figure measure(std::string name, bool more_is_better, std::size_t num_items, const Of& figure_of) {
  Figure figure{.name = std::move(name), .more_is_better = more_is_better, .samples = {}};
  const auto over = [&](std::size_t first, std::size_t last, std::size_t stride) {
    std::vector<std::size_t> places;
    for (std::size_t i = first; i < last; i += stride) places.push_back(i);
    return places.empty() ? 0.0 : figure_of(places);
  };
  for (const auto& [first, last] : split_blocks(num_items)) {
    const double value = over(first, last, 1);
    if (std::isfinite(value) && value > 0) figure.samples.push_back(value);
  }
  figure.split_share = difference(over(0, num_items, 2), over(1, num_items, 2));
  const auto middle = figure.samples.begin() + static_cast<std::ptrdiff_t>(figure.samples.size() / 2);
  if (figure.samples.size() >= 4)
    figure.drift_share = difference(median({figure.samples.begin(), middle}), median({middle, figure.samples.end()}));
  figure.error_share = error_of_quarters(figure.samples);
  return figure;
}

bool is_warm_up(const Timeline& timeline, const StepInfo& step) {
  return step.section >= 0 && timeline.sections.at(static_cast<std::size_t>(step.section)).role != SectionRole::kMeasured;
}

/// Steps by the names that figures give their groups, "" for all.
std::vector<std::pair<std::string, Steps>> group_steps(const Timeline& timeline) {
  const std::vector<std::string> names = step_groups(timeline);
  std::vector<std::pair<std::string, Steps>> groups;
  std::map<std::string, std::size_t> index;
  const auto add = [&](const std::string& name, std::size_t step) {
    const auto [at, is_new] = index.try_emplace(name, groups.size());
    if (is_new) groups.emplace_back(name, Steps());
    groups[at->second].second.push_back(step);
  };
  for (std::size_t s = 0; s < timeline.steps.size(); ++s) {
    const StepInfo& step = timeline.steps[s];
    if (is_warm_up(timeline, step)) continue;
    add(names.at(group_index(step)), s);
    if (step.section < 0) add(step.name(), s);
    add("", s);
  }
  std::stable_partition(groups.begin(), groups.end(), [](const auto& group) { return !group.first.empty(); });
  return groups;
}

void measure_steps(const Timeline& timeline, const std::string& group, const Steps& steps, std::vector<Figure>& figures) {
  const auto sums = [&](const std::vector<std::size_t>& places) {
    double ns = 0, tokens = 0;
    for (const std::size_t place : places) {
      const StepInfo& step = timeline.steps[steps[place]];
      ns += static_cast<double>(step.end_ns - step.begin_ns);
      tokens += static_cast<double>(step.num_useful());
    }
    return std::pair(ns, tokens);
  };
  figures.push_back(measure(group.empty() ? kAllRate : group + std::string(kRate), true, steps.size(), [&](const auto& places) {
    const auto [ns, tokens] = sums(places);
    return ns > 0 ? tokens / ns * 1e9 : 0;
  }));
  if (group.empty()) return;
  figures.push_back(measure(group + std::string(kTime), false, steps.size(),
                            [&](const auto& places) { return sums(places).first / static_cast<double>(places.size()) / 1e6; }));
}

/// Of every request that has it, in order of arrival, in ms.
std::vector<double> first_token_times(const Timeline& timeline) {
  std::vector<double> times;
  for (const RequestInfo& request : timeline.requests)
    if (request.arrival_ns && request.first_token_ns)
      times.push_back(to_us(*request.first_token_ns - *request.arrival_ns) / 1e3);
  return times;
}

/// From each of its steps' ends to the next, in ms, by when it ended.
std::vector<double> token_gaps(const Timeline& timeline) {
  const StepIndex index(timeline);
  std::vector<std::pair<int64_t, double>> gaps;  // end, ms
  for (const RequestInfo& request : timeline.requests) {
    if (!request.first_token_ns) continue;
    int64_t previous_ns = *request.first_token_ns;
    for (const uint32_t number : request.steps) {
      const int32_t at = index.find(number);
      if (at < 0 || timeline.steps[static_cast<std::size_t>(at)].begin_ns < *request.first_token_ns) continue;
      const int64_t end_ns = timeline.steps[static_cast<std::size_t>(at)].end_ns;
      gaps.emplace_back(end_ns, to_us(end_ns - previous_ns) / 1e3);
      previous_ns = end_ns;
    }
  }
  std::sort(gaps.begin(), gaps.end());
  std::vector<double> lengths;
  for (const auto& [end_ns, ms] : gaps) lengths.push_back(ms);
  return lengths;
}

void measure_times(const std::vector<double>& times, const std::string& name, double share, std::vector<Figure>& figures) {
  if (times.empty()) return;
  figures.push_back(measure(name, false, times.size(), [&](const auto& places) {
    std::vector<double> chosen;
    for (const std::size_t place : places) chosen.push_back(times[place]);
    return share == 0.5 ? median(chosen) : percentile(chosen, share);
  }));
}

/// When tokens of answers came: the end of a step and how many, by time. Where drafts make a step give several, its sequences
/// share them evenly.
std::vector<std::pair<int64_t, double>> generated_tokens(const Timeline& timeline) {
  const StepIndex index(timeline);
  std::vector<std::pair<int64_t, double>> tokens;
  for (const RequestInfo& request : timeline.requests) {
    if (request.first_token_ns && request.num_prompt > 0) tokens.emplace_back(*request.first_token_ns, 1);
    if (!request.first_token_ns && request.num_prompt > 0) continue;              // its prompt is not done
    const int64_t since_ns = request.first_token_ns.value_or(timeline.begin_ns);  // else it began before the capture
    for (const uint32_t number : request.steps) {
      const int32_t at = index.find(number);
      if (at < 0) continue;
      const StepInfo& step = timeline.steps[static_cast<std::size_t>(at)];
      if (step.begin_ns < since_ns || step.phase == Phase::kPrefill || step.num_sequences <= 0) continue;
      const bool is_decode = step.phase == Phase::kDecode;
      tokens.emplace_back(step.end_ns,
                          is_decode ? static_cast<double>(step.num_useful()) / static_cast<double>(step.num_sequences) : 1);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

/// By stretches of the time in which steps ran.
void measure_generated(const Timeline& timeline, std::vector<Figure>& figures) {
  const std::vector<std::pair<int64_t, double>> tokens = generated_tokens(timeline);
  if (tokens.empty() || timeline.steps.empty()) return;
  constexpr std::size_t kStretches = 2 * Figure::kBlocks;
  const int64_t begin_ns = timeline.steps.front().begin_ns, length_ns = timeline.steps.back().end_ns - begin_ns;
  if (length_ns <= 0) return;
  std::vector<double> counts(kStretches, 0);
  for (const auto& [at_ns, count] : tokens) {
    const auto stretch =
        static_cast<std::size_t>(static_cast<double>(at_ns - begin_ns) / static_cast<double>(length_ns) * kStretches);
    counts[std::min(stretch, kStretches - 1)] += count;
  }
  const double seconds = static_cast<double>(length_ns) / 1e9 / kStretches;
  figures.push_back(measure(kGenerated, true, kStretches, [&](const auto& places) {
    double sum = 0;
    for (const std::size_t place : places) sum += counts[place];
    return sum / (seconds * static_cast<double>(places.size()));
  }));
}

}  // namespace

double Figure::value() const { return median(samples); }

std::vector<Figure> measure_figures(const Timeline& timeline) {
  std::vector<Figure> figures;
  for (const auto& [group, steps] : group_steps(timeline)) measure_steps(timeline, group, steps, figures);
  measure_generated(timeline, figures);
  measure_times(first_token_times(timeline), "TTFT p50 ms", 0.5, figures);
  measure_times(first_token_times(timeline), "TTFT p90 ms", 0.9, figures);
  measure_times(token_gaps(timeline), "time between tokens p50 ms", 0.5, figures);
  measure_times(token_gaps(timeline), "time between tokens p99 ms", 0.99, figures);
  std::erase_if(figures, [](const Figure& figure) { return figure.samples.empty(); });
  return figures;
}

const Figure* find_figure(const std::vector<Figure>& figures, std::string_view name) {
  const auto found = std::find_if(figures.begin(), figures.end(), [&](const Figure& figure) { return figure.name == name; });
  return found == figures.end() ? nullptr : &*found;
}

std::optional<std::string> steps_group(std::string_view name) {
  if (name == kGenerated) return std::nullopt;
  for (const std::string_view what : {kRate, kTime})
    if (name.ends_with(what)) return std::string(name.substr(0, name.size() - what.size()));
  return std::nullopt;
}

std::vector<std::size_t> steps_of_figure(const Timeline& timeline, std::string_view name) {
  const std::string wanted = steps_group(name).value_or("");
  for (const auto& [group, steps] : group_steps(timeline))
    if (group == wanted) return steps;
  return {};
}

}  // namespace ferry
