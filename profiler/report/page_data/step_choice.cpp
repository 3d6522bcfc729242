#include "profiler/report/page_data/step_choice.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "profiler/report/lost_time/exchanges.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

constexpr std::size_t kFirstSteps = 3;  // of every group

int32_t find_largest(const std::vector<int64_t>& values) {
  const auto most = std::max_element(values.begin(), values.end());
  return most == values.end() || *most <= 0 ? -1 : static_cast<int32_t>(most - values.begin());
}

/// By how much all others' replies of an exchange were back earlier than the rank's; 0 if it was not the last.
int64_t lateness_ns(const Exchanges& exchanges, const SeenExchange& exchange, int32_t rank) {
  int64_t own_ns = exchange.ready_ns, others_ns = exchange.ready_ns;
  for (const Reply& reply : exchanges.replies_of(exchange)) {
    int64_t& back_ns = reply.rank == rank ? own_ns : others_ns;
    back_ns = std::max(back_ns, reply.back_ns);
  }
  return std::max<int64_t>(own_ns - others_ns, 0);
}

int32_t find_latest_step(const ReportInput& input, const Exchanges& exchanges, int32_t rank) {
  const StepIndex steps(input.timeline);
  std::vector<int64_t> late_ns(input.timeline.steps.size(), 0);
  for (const SeenExchange& exchange : exchanges.list) {
    const int32_t step = steps.find(exchange.id.step);
    if (step >= 0) late_ns[static_cast<std::size_t>(step)] += lateness_ns(exchanges, exchange, rank);
  }
  return find_largest(late_ns);
}

int32_t find_most_exposed_step(const ReportInput& input) {
  std::vector<int64_t> exposed_ns;
  for (const StepInfo& step : input.timeline.steps)
    exposed_ns.push_back(break_down(input.activity.at(0), {step.begin_ns, step.end_ns}).exposed);
  return find_largest(exposed_ns);
}

/// Gathers steps in order, each once.
class Ranking {
 public:
  explicit Ranking(std::size_t num_steps) : is_taken_(num_steps, false) {}
  void take(std::size_t step, const char* why) {
    if (is_taken_[step]) return;
    is_taken_[step] = true;
    steps_.push_back({step, why});
  }
  std::vector<ChosenStep> finish() && { return std::move(steps_); }

 private:
  std::vector<bool> is_taken_;
  std::vector<ChosenStep> steps_;
};

/// 0 ‥ size - 1, such that any number of first ones lie all over the range: numbers whose bits are read backwards.
std::vector<std::size_t> spread_out(std::size_t size) {
  std::vector<std::size_t> order;
  const std::size_t full = std::bit_ceil(std::max<std::size_t>(size, 1));
  const int num_bits = std::countr_zero(full);
  for (std::size_t i = 0; i < full; ++i) {
    std::size_t reversed = 0;
    for (int b = 0; b < num_bits; ++b) reversed |= (i >> b & 1) << (num_bits - 1 - b);
    if (reversed < size) order.push_back(reversed);
  }
  return order;
}

int64_t length_ns(const StepInfo& step) { return step.end_ns - step.begin_ns; }

/// Steps of each group, the shortest first.
std::vector<std::vector<std::size_t>> groups_by_length(const Timeline& timeline) {
  std::vector<std::vector<std::size_t>> groups(step_groups(timeline).size());
  for (std::size_t s = 0; s < timeline.steps.size(); ++s) groups[group_index(timeline.steps[s])].push_back(s);
  for (std::vector<std::size_t>& group : groups)
    std::ranges::stable_sort(group, {}, [&](std::size_t s) { return length_ns(timeline.steps[s]); });
  return groups;
}

bool is_measured(const Timeline& timeline, const StepInfo& step) {
  return step.section < 0 || timeline.sections[static_cast<std::size_t>(step.section)].role == SectionRole::kMeasured;
}

}  // namespace

int32_t find_opening_step(const Timeline& timeline) {
  int32_t opening = -1;
  std::pair<bool, int64_t> best{false, -1};  // whether it is measured, and what it took
  for (const std::vector<std::size_t>& group : groups_by_length(timeline)) {
    if (group.empty()) continue;
    int64_t total_ns = 0;
    for (const std::size_t s : group) total_ns += length_ns(timeline.steps[s]);
    const std::pair own{is_measured(timeline, timeline.steps[group.front()]), total_ns};
    if (own <= best) continue;
    best = own;
    opening = static_cast<int32_t>(group[group.size() / 2]);
  }
  return opening;
}

std::vector<int32_t> find_telling_steps(const ReportInput& input, const std::vector<Finding>& findings) {
  const bool has_ranks = std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.rank > 0; });
  const Exchanges exchanges = has_ranks ? find_exchanges(input) : Exchanges{};
  std::vector<int32_t> telling;
  for (const Finding& finding : findings) {
    const bool is_about_time = finding.rank == 0 || finding.table == "phase" || finding.table == "transfer";
    telling.push_back(finding.rank > 0 ? find_latest_step(input, exchanges, finding.rank)
                      : is_about_time  ? find_most_exposed_step(input)
                                       : -1);
  }
  return telling;
}

std::vector<ChosenStep> rank_steps(const ReportInput& input, const std::vector<int32_t>& telling, StepRange wanted) {
  const std::vector<StepInfo>& steps = input.timeline.steps;
  Ranking ranking(steps.size());
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (wanted.holds(steps[s].step)) ranking.take(s, "asked for");
  }
  for (const int32_t step : telling) {
    if (step >= 0) ranking.take(static_cast<std::size_t>(step), "named by a finding");
  }
  std::vector<std::vector<std::size_t>> groups(step_groups(input.timeline).size());
  for (std::size_t s = 0; s < steps.size(); ++s) groups[group_index(steps[s])].push_back(s);
  const std::vector<std::vector<std::size_t>> by_length = groups_by_length(input.timeline);
  for (const std::vector<std::size_t>& group : by_length) {
    if (!group.empty()) ranking.take(group.back(), "slowest");
  }
  for (const std::vector<std::size_t>& group : by_length) {
    if (!group.empty()) ranking.take(group[group.size() / 2], "median");
  }
  for (const std::vector<std::size_t>& group : groups) {
    for (std::size_t i = 0; i < std::min(group.size(), kFirstSteps); ++i) ranking.take(group[i], "first");
  }
  for (const std::size_t s : spread_out(steps.size())) ranking.take(s, "one of many");
  return std::move(ranking).finish();
}

}  // namespace ferry
