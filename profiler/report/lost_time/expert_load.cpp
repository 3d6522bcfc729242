#include "profiler/report/lost_time/expert_load.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

/// Fills in what the ranks of the experts spent and made others wait, a step.
void add_times(const ReportInput& input, const LostTime& lost, std::vector<HotExpert>& hot) {
  const Timeline& timeline = input.timeline;
  const auto steps = static_cast<double>(timeline.steps.size());
  if (steps == 0) return;
  for (HotExpert& expert : hot) {
    const std::vector<int64_t>& saved_ns = lost.ranks.at(static_cast<std::size_t>(expert.rank)).more_rows_ns;
    const auto layer = static_cast<std::size_t>(expert.layer);
    if (layer < saved_ns.size()) expert.saved_us = to_us(saved_ns[layer]) / steps;
  }
  for (const Slice& slice : timeline.slices) {
    const int32_t rank = timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    const bool is_grouped = slice.zone == Zone::kGroupedGateUp || slice.zone == Zone::kGroupedDown;
    const bool is_wait = slice.zone == Zone::kWaitCombine && rank == 0;
    if (!is_grouped && !is_wait) continue;
    for (HotExpert& expert : hot) {
      if (expert.layer != slice.layer) continue;
      if (is_grouped && expert.rank == rank) expert.grouped_us += to_us(slice.self_ns) / steps;
      if (is_wait && expert.rank == static_cast<int32_t>(slice.b))
        expert.coordinator_wait_us += to_us(slice.duration_ns()) / steps;
    }
  }
}

}  // namespace

double RankLoad::balancedness() const {
  if (largest == 0) return 1;
  return static_cast<double>(total) / static_cast<double>(tokens.size()) / static_cast<double>(largest);
}

RankLoad find_rank_load(const CaptureInfo& info, std::size_t layer) {
  RankLoad load;
  const std::set<int32_t> ranks(info.expert_rank.begin(), info.expert_rank.end());
  load.ranks.assign(ranks.begin(), ranks.end());
  load.tokens.resize(load.ranks.size());
  const std::vector<int64_t>& tokens = info.expert_tokens.at(layer);
  for (std::size_t e = 0; e < tokens.size() && e < info.expert_rank.size(); ++e) {
    const auto rank = std::lower_bound(load.ranks.begin(), load.ranks.end(), info.expert_rank[e]) - load.ranks.begin();
    load.tokens[static_cast<std::size_t>(rank)] += tokens[e];
    load.total += tokens[e];
  }
  for (const int64_t count : load.tokens) load.largest = std::max(load.largest, count);
  return load;
}

std::vector<HotExpert> find_hot_experts(const ReportInput& input, const LostTime& lost, std::size_t count) {
  const CaptureInfo& info = input.capture.info;
  std::vector<HotExpert> hot;
  for (std::size_t layer = 0; layer < info.expert_tokens.size(); ++layer) {
    const std::vector<int64_t>& tokens = info.expert_tokens[layer];
    const int64_t total = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    for (std::size_t e = 0; e < tokens.size() && e < info.expert_rank.size(); ++e) {
      if (tokens[e] == 0) continue;
      const double share = static_cast<double>(tokens[e]) / static_cast<double>(total);
      hot.push_back({.layer = static_cast<int32_t>(layer),
                     .expert = static_cast<int32_t>(e),
                     .rank = info.expert_rank[e],
                     .tokens = tokens[e],
                     .layer_share = share,
                     .over_mean = share * static_cast<double>(tokens.size())});
    }
  }
  const std::size_t kept = std::min(count, hot.size());
  std::partial_sort(hot.begin(), hot.begin() + static_cast<std::ptrdiff_t>(kept), hot.end(),
                    [](const HotExpert& x, const HotExpert& y) {
                      return std::tuple(-x.layer_share, -x.tokens, x.layer, x.expert) <
                             std::tuple(-y.layer_share, -y.tokens, y.layer, y.expert);
                    });
  hot.resize(kept);
  for (HotExpert& expert : hot) {
    const RankLoad load = find_rank_load(info, static_cast<std::size_t>(expert.layer));
    const auto at = std::lower_bound(load.ranks.begin(), load.ranks.end(), expert.rank) - load.ranks.begin();
    const double mean_rank = static_cast<double>(load.total) / static_cast<double>(load.ranks.size());
    const auto rank_tokens = static_cast<double>(load.tokens[static_cast<std::size_t>(at)]);
    const auto mean_tokens = static_cast<double>(load.total) / static_cast<double>(info.expert_rank.size());
    expert.rank_over_mean = rank_tokens / mean_rank;
    if (rank_tokens > mean_rank)
      expert.extra_share = (static_cast<double>(expert.tokens) - mean_tokens) / (rank_tokens - mean_rank);
  }
  add_times(input, lost, hot);
  return hot;
}

}  // namespace ferry
