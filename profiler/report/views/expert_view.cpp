#include <algorithm>
#include <numeric>
#include <string>

#include "profiler/report/lost_time/expert_load.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// "2", "1 3": who holds an expert.
Table::Cell rank_cell(const std::vector<int32_t>& holders) {
  if (holders.empty()) return {};
  if (holders.size() == 1) return static_cast<int64_t>(holders.front());
  std::string text;
  for (const int32_t rank : holders) text += (text.empty() ? "" : " ") + std::to_string(rank);
  return text;
}

}  // namespace

Table make_expert_view(const ReportInput& input) {
  Table table{.id = "expert",
              .title = "Expert load",
              .note =
                  "Rows that the router gave each expert while capturing; over_mean: times the layer's mean. rank: who held it "
                  "when the "
                  "capture began, all copies.",
              .columns = {{"layer"}, {"expert"}, {"rank"}, {"tokens"}, {"layer_share", 5}, {"over_mean", 3}}};
  const CaptureInfo& info = input.capture.info;
  for (std::size_t layer = 0; layer < info.expert_tokens.size(); ++layer) {
    const std::vector<int64_t>& tokens = info.expert_tokens[layer];
    double total = 0;
    for (const int64_t count : tokens) total += static_cast<double>(count);
    for (std::size_t e = 0; e < tokens.size(); ++e) {
      const auto count = static_cast<double>(tokens[e]);
      table.rows.push_back({static_cast<int64_t>(layer), static_cast<int64_t>(e), rank_cell(find_holders(info, layer, e)),
                            tokens[e], ratio_cell(count, total),
                            ratio_cell(count * static_cast<double>(tokens.size()), total)});
    }
  }
  return table;
}

Table make_balance_view(const ReportInput& input) {
  Table table{.id = "balance",
              .title = "Balance of ranks",
              .note =
                  "Rows per layer and rank that answered them. balancedness = mean over ranks / max over ranks: 1 is even; "
                  "imbalance is its "
                  "inverse; gini is over experts.",
              .columns = {{"layer"},
                          {"tokens"},
                          {"balancedness", 4},
                          {"imbalance", 4},
                          {"gini", 4},
                          {"busiest_rank"},
                          {"hottest_expert"},
                          {"hottest_share", 4}}};
  const CaptureInfo& info = input.capture.info;
  const std::vector<RankLoad> loads = find_rank_loads(input);
  for (std::size_t layer = 0; layer < info.expert_tokens.size(); ++layer) {
    const RankLoad& load = loads[layer];
    if (layer == 0) {
      for (const int32_t rank : load.ranks) table.columns.push_back({"rank_" + std::to_string(rank) + "_tokens"});
    }
    const std::vector<int64_t>& tokens = info.expert_tokens[layer];
    std::vector<Table::Cell> row = {static_cast<int64_t>(layer), load.total};
    if (load.total == 0) {
      row.resize(8);
    } else {
      const auto busiest = std::max_element(load.tokens.begin(), load.tokens.end()) - load.tokens.begin();
      const auto hottest = std::max_element(tokens.begin(), tokens.end()) - tokens.begin();
      row.emplace_back(load.balancedness());
      row.emplace_back(1 / load.balancedness());
      row.emplace_back(gini(tokens));
      row.emplace_back(static_cast<int64_t>(load.ranks[static_cast<std::size_t>(busiest)]));
      row.emplace_back(static_cast<int64_t>(hottest));
      row.emplace_back(static_cast<double>(tokens[static_cast<std::size_t>(hottest)]) /
                       static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0})));
    }
    for (const int64_t count : load.tokens) row.emplace_back(count);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table make_hot_expert_view(const ReportInput& input) {
  constexpr std::size_t kShown = 10;
  Table table{
      .id = "hot_expert",
      .title = "Hot experts",
      .note =
          "The experts with the largest shares of their layer, what their rank spends there and what that costs. "
          "Times are a step: GroupedMatmul of that rank and layer; the coordinator's wait for that rank; saved: how much "
          "shorter the step would be if the rank had no more rows in that layer than the others. " +
          clock_note(input),
      .columns = {{"layer"},
                  {"expert"},
                  {"rank"},
                  {"tokens"},
                  {"layer_share", 4},
                  {"over_mean", 3},
                  {"rank_over_mean", 3},
                  {"grouped_matmul_us", 3},
                  {"coordinator_wait_us", 3},
                  {"saved_us", 3}}};
  for (const HotExpert& expert : find_hot_experts(input, find_lost_time(input), kShown)) {
    table.rows.push_back({static_cast<int64_t>(expert.layer), static_cast<int64_t>(expert.expert),
                          static_cast<int64_t>(expert.rank), expert.tokens, expert.layer_share, expert.over_mean,
                          expert.rank_over_mean, expert.grouped_us, expert.coordinator_wait_us, expert.saved_us});
  }
  return table;
}

}  // namespace ferry
