#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/lost_time/lost_time.h"

namespace ferry {

/// How a layer's rows spread over the ranks that hold experts.
struct RankLoad {
  std::vector<int32_t> ranks;   // that hold experts, ascending
  std::vector<int64_t> tokens;  // [ranks.size()] of one layer
  int64_t total = 0, largest = 0;

  /// Mean over ranks / max over ranks: 1 is perfect balance. 1 if there are no tokens.
  double balancedness() const;
};
RankLoad find_rank_load(const CaptureInfo& info, std::size_t layer);

/// An expert that gets far more than its share of a layer, and what that costs.
struct HotExpert {
  int32_t layer = 0, expert = 0, rank = 0;
  int64_t tokens = 0;
  double layer_share = 0;     // of the layer's rows
  double over_mean = 0;       // times the mean expert's
  double rank_over_mean = 0;  // its rank's rows in the layer over the mean rank's
  double extra_share = 0;     // its rows above the mean expert's over its rank's above the mean rank's; 0 if the rank has none
  double grouped_us = 0;      // a step: GroupedMatmul of that rank in that layer
  double coordinator_wait_us = 0;  // a step: the coordinator waits for that rank's reply
  double saved_us = 0;             // a step: it would be shorter by so much if that rank had no more rows there than the others
};

/// The `count` hottest of all (layer, expert), hottest first. Empty if the capture has no expert counts.
std::vector<HotExpert> find_hot_experts(const ReportInput& input, const LostTime& lost, std::size_t count);

}  // namespace ferry
