#include "profiler/report/expert_load.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "profiler/report/exchanges.h"
#include "profiler/report/step_slices.h"

namespace ferry {
namespace {

/// Fills in what the ranks of the experts spent and made others wait, a step.
void add_times(const ReportInput& input, std::vector<HotExpert>& hot) {
  const Timeline& timeline = input.timeline;
  const auto steps = static_cast<double>(timeline.steps.size());
  if (steps == 0) return;
  for (const Slice& slice : timeline.slices) {
    if (slice.zone != Zone::kGroupedGateUp && slice.zone != Zone::kGroupedDown) continue;
    const int32_t rank = timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    for (HotExpert& expert : hot) {
      if (expert.rank == rank && expert.layer == slice.layer) expert.grouped_us += to_us(slice.self_ns) / steps;
    }
  }
  const Exchanges exchanges = find_exchanges(input);
  for (const Exchange& exchange : exchanges.list) {
    for (HotExpert& expert : hot) {
      if (expert.layer != exchange.id.layer) continue;
      const auto first = exchanges.replies.begin() + static_cast<std::ptrdiff_t>(exchange.first);
      const auto last = exchanges.replies.begin() + static_cast<std::ptrdiff_t>(exchange.last);
      const auto own = std::find_if(first, last, [&](const Reply& reply) { return reply.rank == expert.rank; });
      if (own == last) continue;
      expert.coordinator_wait_us += to_us(own->waited_ns) / steps;
      for (auto other = first; other != last; ++other) {
        const double bound_ns = clock_bound_ns(input, own->rank, other->rank);
        const int64_t wait_ns = own->posted_ns - other->posted_ns;
        if (static_cast<double>(wait_ns) > bound_ns) expert.others_wait_us += to_us(wait_ns) / steps;
        expert.bound_us = std::max(expert.bound_us, bound_ns / 1e3);
      }
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

std::vector<HotExpert> find_hot_experts(const ReportInput& input, std::size_t count) {
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
    expert.rank_over_mean = static_cast<double>(load.tokens[static_cast<std::size_t>(at)]) / mean_rank;
  }
  add_times(input, hot);
  return hot;
}

}  // namespace ferry
