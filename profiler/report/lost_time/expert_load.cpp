#include "profiler/report/lost_time/expert_load.h"

#include <algorithm>
#include <map>
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

/// Of the ranks the one with the most rows of the layer.
int32_t fullest(const std::vector<int32_t>& holders, const RankLoad& load) {
  const auto rows = [&](int32_t rank) {
    return load.tokens[static_cast<std::size_t>(std::ranges::lower_bound(load.ranks, rank) - load.ranks.begin())];
  };
  return *std::ranges::max_element(holders, {}, rows);
}

}  // namespace

double RankLoad::balancedness() const {
  if (largest == 0) return 1;
  return static_cast<double>(total) / static_cast<double>(tokens.size()) / static_cast<double>(largest);
}

std::vector<int32_t> find_holders(const CaptureInfo& info, std::size_t layer, std::size_t expert) {
  std::vector<int32_t> holders = info.placement.ranks_of(layer, expert);
  if (holders.empty() && expert < info.expert_rank.size()) holders.push_back(info.expert_rank[expert]);
  return holders;
}

std::vector<RankLoad> find_rank_loads(const ReportInput& input) {
  const CaptureInfo& info = input.capture.info;
  const std::size_t num_layers = info.expert_tokens.size();
  std::vector<std::map<int32_t, int64_t>> answered(num_layers), asked(num_layers);  // rows by rank
  std::set<int32_t> ranks;
  for (const CounterSample& sample : input.timeline.counters) {
    const auto layer = static_cast<std::size_t>(sample.at.layer);
    if (sample.zone != Zone::kRankRows || sample.rank != 0 || layer >= num_layers) continue;
    answered[layer][static_cast<int32_t>(sample.b)] += sample.value;
    ranks.insert(static_cast<int32_t>(sample.b));
  }
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    for (std::size_t e = 0; e < info.expert_tokens[layer].size(); ++e) {
      const std::vector<int32_t> holders = find_holders(info, layer, e);
      ranks.insert(holders.begin(), holders.end());
      for (std::size_t h = 0; h < holders.size(); ++h) {  // the first ones have what is left of a division
        const auto copies = static_cast<int64_t>(holders.size()), rest = static_cast<int64_t>(h);
        asked[layer][holders[h]] += (info.expert_tokens[layer][e] + copies - 1 - rest) / copies;
      }
    }
  }
  std::vector<RankLoad> loads;
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    RankLoad& load = loads.emplace_back();
    load.ranks.assign(ranks.begin(), ranks.end());
    const std::map<int32_t, int64_t>& rows = answered[layer].empty() ? asked[layer] : answered[layer];
    for (const int32_t rank : load.ranks) {
      const auto found = rows.find(rank);
      load.tokens.push_back(found == rows.end() ? 0 : found->second);
      load.total += load.tokens.back();
      load.largest = std::max(load.largest, load.tokens.back());
    }
  }
  return loads;
}

std::vector<HotExpert> find_hot_experts(const ReportInput& input, const LostTime& lost, std::size_t count) {
  const CaptureInfo& info = input.capture.info;
  const std::vector<RankLoad> loads = find_rank_loads(input);
  std::vector<HotExpert> hot;
  for (std::size_t layer = 0; layer < info.expert_tokens.size(); ++layer) {
    const std::vector<int64_t>& tokens = info.expert_tokens[layer];
    const int64_t total = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    for (std::size_t e = 0; e < tokens.size() && e < info.expert_rank.size(); ++e) {
      if (tokens[e] == 0) continue;
      const double share = static_cast<double>(tokens[e]) / static_cast<double>(total);
      hot.push_back({.layer = static_cast<int32_t>(layer),
                     .expert = static_cast<int32_t>(e),
                     .rank = fullest(find_holders(info, layer, e), loads[layer]),
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
    const RankLoad& load = loads[static_cast<std::size_t>(expert.layer)];
    const auto at = std::lower_bound(load.ranks.begin(), load.ranks.end(), expert.rank) - load.ranks.begin();
    const double mean_rank = static_cast<double>(load.total) / static_cast<double>(load.ranks.size());
    const auto rank_tokens = static_cast<double>(load.tokens[static_cast<std::size_t>(at)]);
    const auto mean_tokens = static_cast<double>(load.total) / static_cast<double>(info.expert_rank.size());
    expert.rank_over_mean = mean_rank > 0 ? rank_tokens / mean_rank : 0;
    if (rank_tokens > mean_rank)
      expert.extra_share = (static_cast<double>(expert.tokens) - mean_tokens) / (rank_tokens - mean_rank);
  }
  add_times(input, lost, hot);
  return hot;
}

}  // namespace ferry
